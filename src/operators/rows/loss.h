// The operator table, part: losses and softmax.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kLoss =
    "losses add many small terms and their gradients start the backward pass";
inline constexpr std::string_view kBce =
    "log(p) near 0 and 1 needs float; computed in float instead of being an error";
inline constexpr std::string_view kLogSigmoid = "exp and log leave the range of 16 bits";
inline constexpr std::string_view kSoftmax = "sums exponentials";

inline constexpr std::array kLossRows{
    one_type(row("_masked_softmax", kFloat, "-f--", kSoftmax)),
    one_type(row("binary_cross_entropy", kFloat, "b-bf", kBce)),
    one_type(row("binary_cross_entropy_with_logits", kFloat, "f-ff", kLoss)),
    row("cosine_embedding_loss", kFloat, "f-ff", kLoss),
    one_type(row("cross_entropy_loss", kFloat, "ff-f", kLoss)),
    lacks_low(row("ctc_loss.IntList", kFloat, "ff-f", kLoss)),
    lacks_low(row("ctc_loss.Tensor", kFloat, "ff-f", kLoss)),
    row("hinge_embedding_loss", kFloat, "f-ff", kLoss),
    one_type(row("huber_loss", kFloat, "-fff", kLoss)),
    one_type(row("kl_div", kFloat, "f-ff", kLoss)),
    one_type(row("l1_loss", kFloat, "f-ff", kLoss)),
    row("log_sigmoid", kFloat, "-n--", kLogSigmoid),
    by_dtype(row("log_softmax.Dimname", kFloat, "fff-", kSoftmax)),
    by_dtype(row("log_softmax.int", kFloat, "fff-", kSoftmax)),
    row("margin_ranking_loss", kFloat, "f-ff", kLoss),
    one_type(row("mse_loss", kFloat, "f-ff", kLoss)),
    one_type(lacks_low(row("multi_margin_loss", kFloat, "ffff", kLoss))),
    one_type(lacks_low(row("multilabel_margin_loss", kFloat, "f-ff", kLoss))),
    lacks_low(row("multilabel_margin_loss_forward", kFloat, "---f", kLoss)),
    one_type(row("nll_loss", kFloat, "f-ff", kLoss)),
    one_type(row("nll_loss2d", kFloat, "f-ff", kLoss)),
    one_type(row("nll_loss_nd", kFloat, "f---", kLoss)),
    row("poisson_nll_loss", kFloat, "f-ff", kLoss),
    one_type(row("smooth_l1_loss", kFloat, "ffff", kLoss)),
    one_type(row("soft_margin_loss", kFloat, "f-ff", kLoss)),
    by_dtype(row("softmax.Dimname", kFloat, "fff-", kSoftmax)),
    by_dtype(row("softmax.int", kFloat, "fff-", kSoftmax)),
    by_dtype(row("special_log_softmax", kFloat, "----", kSoftmax)),
    by_dtype(row("special_softmax", kFloat, "----", kSoftmax)),
    row("triplet_margin_loss", kFloat, "f-ff", kLoss),
};

}  // namespace mezzo::rows

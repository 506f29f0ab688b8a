// Adapters for what changed up to opset 7. Each rewrites one node so that it means under the opset
// in its name what it meant before, and returns why it cannot, or an empty text.
#pragma once

#include <string>

#include "convert/prepare/opset_edit.h"

namespace mezzo::convert {

std::string batch_norm_7(NodeEdit& node);
std::string cast_6(NodeEdit& node);
std::string concat_4(NodeEdit& node);
std::string drop_broadcast(NodeEdit& node);
std::string drop_legacy(NodeEdit& node);
std::string dropout_7(NodeEdit& node);
std::string lp_pool_2(NodeEdit& node);
std::string pad_2(NodeEdit& node);
std::string prelu_7(NodeEdit& node);
std::string recurrent_7(NodeEdit& node);
std::string reshape_5(NodeEdit& node);
std::string selu_6(NodeEdit& node);
std::string split_2(NodeEdit& node);
std::string tile_6(NodeEdit& node);
std::string upsample_7(NodeEdit& node);

}  // namespace mezzo::convert

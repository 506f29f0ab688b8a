// Boxes of detectors: anchors, decoding, and what is left when boxes that overlap are dropped.
#include <algorithm>
#include <cmath>
#include <limits>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr std::int64_t kEndOfBoxes = std::numeric_limits<std::int64_t>::max();
constexpr double kLowest = -1e30;  // a score that no candidate has

Operand coordinate(Call& call, const Operand& boxes, std::int64_t i) {
  return call.slice(boxes, 2, i, i + 1);
}

// x, y, width, height of boxes that are corners, and back.
Operands centers_of(Call& call, const Operand& boxes) {
  const Operand left = coordinate(call, boxes, 0), top = coordinate(call, boxes, 1);
  const Operand width = call.broadcast("Sub", coordinate(call, boxes, 2), left);
  const Operand height = call.broadcast("Sub", coordinate(call, boxes, 3), top);
  return {call.broadcast("Add", left, call.broadcast("Mul", width, 0.5)),
          call.broadcast("Add", top, call.broadcast("Mul", height, 0.5)), width, height};
}

Operand corners_of(Call& call, const Operand& x, const Operand& y, const Operand& half_width,
                   const Operand& half_height) {
  return call.concat({call.broadcast("Sub", x, half_width), call.broadcast("Sub", y, half_height),
                      call.broadcast("Add", x, half_width), call.broadcast("Add", y, half_height)},
                     2);
}

Operand as_corners(Call& call, const Operand& boxes) {
  return corners_of(call, coordinate(call, boxes, 0), coordinate(call, boxes, 1),
                    call.broadcast("Mul", coordinate(call, boxes, 2), 0.5),
                    call.broadcast("Mul", coordinate(call, boxes, 3), 0.5));
}

Operand as_centers(Call& call, const Operand& boxes) {
  return call.concat(centers_of(call, boxes), 2);
}

// Anchors moved by a network's output; `factors` of x, y, width and height.
Operand decoded(Call& call, const Operand& data, const Operands& anchors,
                const std::vector<double>& factors, double largest) {
  const auto moved = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const Operand by = call.broadcast("Mul", coordinate(call, data, i), factors[at]);
    return call.broadcast("Add", call.broadcast("Mul", by, anchors[at + 2]), anchors[at]);
  };
  const auto half = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    Operand by = call.broadcast("Mul", coordinate(call, data, i), factors[at]);
    if (largest > 0) by = call.broadcast("Min", by, largest);
    const Operand size = call.broadcast("Mul", call.map("Exp", by), anchors[at]);
    return call.broadcast("Mul", size, 0.5);
  };
  return corners_of(call, moved(0), moved(1), half(2), half(3));
}

Operands box_decode(Call& call) {
  const Operand& anchors = call.input(1);
  const std::string format = call.text("format", "center");
  Operands centers;
  if (format == "corner") {
    centers = centers_of(call, anchors);
  } else {
    for (const std::int64_t i : {0, 1, 2, 3}) centers.push_back(coordinate(call, anchors, i));
  }
  const std::vector<double> factors{call.number("std0", 1), call.number("std1", 1),
                                    call.number("std2", 1), call.number("std3", 1)};
  Operand boxes = decoded(call, call.input(0), centers, factors, call.number("clip", -1));
  boxes.dims = call.input(0).dims;
  return {boxes};
}

// Candidates in the order in which they are looked at. All have the shape (batch, count, ...).
struct Candidates {
  Operand boxes;   // corners
  Operand scores;  // (batch, count)
  Operand ids;     // (batch, count); not there: all boxes compete
  Operand valid;   // (batch, count): which ones are candidates at all
};

// Each class competes by itself: scores (batch, classes, count), the lowest in other classes.
Operand scores_by_class(Call& call, const Candidates& candidates, const Operand& scores) {
  Operand all = call.unsqueeze(scores, {1});
  if (!candidates.ids.is_there()) return all;
  const auto extreme = [&](const char* op) {
    return call.add(op, {candidates.ids}, {{"keepdims", std::int64_t{0}}},
                    {candidates.ids.element, Dims{}});
  };
  const Operand first = call.cast(extreme("ReduceMin"), Element::kInt64);
  const Operand last = call.cast(extreme("ReduceMax"), Element::kInt64);
  const Operand one = call.writer.integer(1);
  const Operand classes = call.add("Range", {first, call.broadcast("Add", last, one), one}, {},
                                   {Element::kInt64, Dims{kUnknownSize}});
  const Operand ids = call.unsqueeze(call.cast(candidates.ids, Element::kInt64), {1});
  const Operand column = call.unsqueeze(classes, {0, 2});
  const Operand is_of_class =
      call.add("Equal", {ids, column}, {}, {Element::kBool, broadcast_dims(ids.dims, column.dims)});
  return call.where(is_of_class, all, call.writer.number(kLowest, all.element));
}

// Which candidates stay, (batch, count), when those that overlap a better one are dropped.
Operand survivors(Call& call, const Candidates& candidates, double overlap) {
  const Operand low = call.writer.number(kLowest, candidates.scores.element);
  const Operand scores =
      scores_by_class(call, candidates, call.where(candidates.valid, candidates.scores, low));
  const Operand chosen =
      call.add("NonMaxSuppression",
               {candidates.boxes, scores, call.writer.integer(std::int64_t{1} << 30),
                call.writer.number(overlap, Element::kFloat),
                call.writer.number(kLowest / 2, Element::kFloat)},
               {}, {Element::kInt64, Dims{kUnknownSize, 3}});
  const Operand places =
      call.add("Gather", {chosen, call.writer.integers({0, 2})}, {{"axis", std::int64_t{1}}},
               {Element::kInt64, Dims{kUnknownSize, 2}});
  const Operand none = call.expand(call.writer.number(0, Element::kFloat),
                                   call.sizes(candidates.scores), candidates.scores.dims);
  const Operand ones =
      call.expand(call.writer.number(1, Element::kFloat), call.size(places, 0), Dims{kUnknownSize});
  const Operand marks = call.add("ScatterND", {none, places, ones}, {}, form_of(candidates.scores));
  return call.cast(marks, Element::kBool);
}

// The best `count` (a list of one) by a key (batch, all): their places, (batch, count, 1).
Operand best_places(Call& call, const Operand& key, const Operand& count, std::int64_t known) {
  const Dims dims{key.dims ? key.dims->front() : kUnknownSize, known};
  const Operands found = call.writer.add("TopK", {key, count}, {{"axis", std::int64_t{1}}},
                                         {Form{key.element, dims}, Form{Element::kInt64, dims}});
  return call.unsqueeze(found[1], {2});
}

Operand rows_at(Call& call, const Operand& rows, const Operand& places) {
  Dims dims = call.dims(rows);
  dims.at(1) = places.dims->at(1);
  return call.add("GatherND", {rows, places}, {{"batch_dims", std::int64_t{1}}},
                  {rows.element, dims});
}

Operand column_of(Call& call, const Operand& rows, std::int64_t i) {
  return call.squeeze(coordinate(call, rows, i), {2});
}

// 0, 1, 2, ... along the candidates, as floats.
Operand positions_of(Call& call, const Operand& scores) {
  const Operand count = call.squeeze(call.size(scores, 1), {0});
  const Operand places =
      call.add("Range", {call.writer.integer(0), count, call.writer.integer(1)}, {},
               {Element::kInt64, Dims{scores.dims ? scores.dims->at(1) : kUnknownSize}});
  return call.cast(places, Element::kFloat);
}

// Rows of survivors first, in their order.
Operand with_survivors_first(Call& call, const Operand& rows, const Operand& kept,
                             const Operand& scores) {
  constexpr double kBehindAll = 1 << 23;
  const Operand positions = positions_of(call, scores);
  const Operand behind = call.broadcast("Add", positions, kBehindAll);
  Operand key = call.map("Neg", call.where(kept, positions, behind));
  key.dims = scores.dims;
  const Operand places =
      best_places(call, key, call.size(scores, 1), scores.dims ? scores.dims->at(1) : kUnknownSize);
  const Operand is_row = call.unsqueeze(kept, {2});
  Operand marked = call.where(is_row, rows, call.writer.number(-1, rows.element));
  marked.dims = rows.dims;
  return rows_at(call, marked, places);
}

Operand padded_to(Call& call, const Operand& rows, const Operand& whole) {
  const Operand missing = call.broadcast("Sub", call.size(whole, 1), call.size(rows, 1));
  const Operand pads =
      call.concat({call.writer.integers({0, 0, 0, 0}), missing, call.writer.integers({0})}, 0);
  return call.add("Pad", {rows, pads, call.writer.number(-1, rows.element)}, {}, form_of(whole));
}

struct NmsOptions {
  double overlap, valid;
  std::int64_t topk, coordinates, score, id, background;
  bool competes, is_corner_in, is_corner_out;
};

NmsOptions nms_options(Call& call) {
  return {call.number("overlap_thresh", 0.5),
          call.number("valid_thresh", 0),
          call.integer("topk", -1),
          call.integer("coord_start", 2),
          call.integer("score_index", 1),
          call.integer("id_index", -1),
          call.integer("background_id", -1),
          call.flag("force_suppress"),
          call.text("in_format", "corner") == "corner",
          call.text("out_format", "corner") == "corner"};
}

// Which rows may become candidates, (batch, count).
Operand valid_rows(Call& call, const NmsOptions& options, const Operand& rows) {
  const Operand scores = column_of(call, rows, options.score);
  const Form truth{Element::kBool, scores.dims};
  Operand is_high =
      call.add("Greater", {scores, call.writer.number(options.valid, scores.element)}, {}, truth);
  if (options.id < 0) return is_high;
  const Operand ids = column_of(call, rows, options.id);
  const Operand is_background = call.add(
      "Equal", {ids, call.writer.number(static_cast<double>(options.background), ids.element)}, {},
      truth);
  return call.add("And", {is_high, call.add("Not", {is_background}, {}, truth)}, {}, truth);
}

Operand with_coordinates(Call& call, const NmsOptions& options, const Operand& rows) {
  if (options.is_corner_in == options.is_corner_out) return rows;
  const std::int64_t width = call.dims(rows, 1).back();
  const Operand boxes = call.slice(rows, 2, options.coordinates, options.coordinates + 4);
  Operands parts;
  if (options.coordinates > 0) parts.push_back(call.slice(rows, 2, 0, options.coordinates));
  parts.push_back(options.is_corner_in ? as_centers(call, boxes) : as_corners(call, boxes));
  if (width < 0 || options.coordinates + 4 < width)
    parts.push_back(call.slice(rows, 2, options.coordinates + 4, kEndOfBoxes));
  return call.concat(parts, 2);
}

Operands box_nms(Call& call) {
  const NmsOptions options = nms_options(call);
  Operand all = call.input(0);
  const std::int64_t rank = call.rank(all);
  if (rank != 2 && rank != 3)
    call.refuse("its data has " + std::to_string(rank) + " dimensions; expected two or three");
  if (rank == 2) all = call.unsqueeze(all, {0});
  const Operand low = call.writer.number(kLowest, all.element);
  Operand key =
      call.where(valid_rows(call, options, all), column_of(call, all, options.score), low);
  const std::int64_t known = call.dims(all).at(1);
  Operand count = call.size(all, 1);
  std::int64_t known_count = known;
  if (options.topk > 0) {
    count = call.broadcast("Min", count, call.writer.integers({options.topk}));
    known_count = known < 0 ? kUnknownSize : std::min(known, options.topk);
  }
  const Operand rows = rows_at(call, all, best_places(call, key, count, known_count));
  Candidates candidates{call.slice(rows, 2, options.coordinates, options.coordinates + 4),
                        column_of(call, rows, options.score),
                        {},
                        valid_rows(call, options, rows)};
  if (!options.is_corner_in) candidates.boxes = as_corners(call, candidates.boxes);
  if (options.id >= 0 && !options.competes) candidates.ids = column_of(call, rows, options.id);
  const Operand kept = survivors(call, candidates, options.overlap);
  Operand result =
      with_survivors_first(call, with_coordinates(call, options, rows), kept, candidates.scores);
  if (options.topk > 0) result = padded_to(call, result, all);
  if (rank == 2) result = call.squeeze(result, {0});
  // The second result is for training.
  return {result};
}

// Centers of cells along one side, of which there are as many as the image has rows or columns.
Operand cell_centers(Call& call, std::int64_t axis, double step, double offset) {
  const Operand& image = call.input(0);
  const Operand size = call.squeeze(call.size(image, axis), {0});
  const Operand places = call.add("Range", {call.writer.integer(0), size, call.writer.integer(1)},
                                  {}, {Element::kInt64, Dims{kUnknownSize}});
  const Operand moved = call.broadcast("Add", call.cast(places, Element::kFloat), offset);
  if (step > 0) return call.broadcast("Mul", moved, step);
  return call.broadcast("Div", moved, call.cast(size, Element::kFloat));
}

Operands multibox_prior(Call& call) {
  const std::vector<double> sizes = call.numbers("sizes", {1}),
                            ratios = call.numbers("ratios", {1}),
                            steps = call.numbers("steps", {-1, -1}),
                            offsets = call.numbers("offsets", {0.5, 0.5});
  if (sizes.empty() || ratios.empty() || steps.size() != 2 || offsets.size() != 2)
    call.refuse(
        "sizes, ratios, steps or offsets cannot be; expected sizes, ratios, and two of each "
        "of the others");
  std::vector<float> widths, heights;  // half of them, of a square image
  const auto add_anchor = [&](double size, double ratio) {
    widths.push_back(static_cast<float>(size * std::sqrt(ratio) / 2));
    heights.push_back(static_cast<float>(size / std::sqrt(ratio) / 2));
  };
  for (const double size : sizes) add_anchor(size, ratios.front());
  for (std::size_t i = 1; i < ratios.size(); ++i) add_anchor(sizes.front(), ratios[i]);
  const Operand height = call.cast(call.size(call.input(0), 2), Element::kFloat);
  const Operand width = call.cast(call.size(call.input(0), 3), Element::kFloat);
  const auto count = static_cast<std::int64_t>(widths.size());
  const Operand half_widths = call.broadcast("Mul", call.writer.floats({count}, widths),
                                             call.broadcast("Div", height, width));
  const Operand half_heights = call.writer.floats({count}, heights);
  const Operand ys = call.unsqueeze(cell_centers(call, 2, steps[0], offsets[0]), {1, 2});
  const Operand xs = call.unsqueeze(cell_centers(call, 3, steps[1], offsets[1]), {0, 2});
  // One value for each row, column and anchor.
  const Operand nothing =
      call.broadcast("Mul", call.broadcast("Add", ys, call.broadcast("Add", xs, half_heights)), 0);
  Operands sides;
  for (const char* op : {"Sub", "Add"}) {
    for (const bool is_x : {true, false}) {
      const Operand side = call.broadcast(op, is_x ? xs : ys, is_x ? half_widths : half_heights);
      sides.push_back(call.unsqueeze(call.broadcast("Add", side, nothing), {3}));
    }
  }
  Operand anchors = call.reshape(call.concat(sides, 3), {1, -1, 4}, Dims{1, kUnknownSize, 4});
  if (call.flag("clip")) {
    anchors = call.add(
        "Clip",
        {anchors, call.writer.number(0, Element::kFloat), call.writer.number(1, Element::kFloat)},
        {}, form_of(anchors));
  }
  return {anchors};
}

Operands multibox_detection(Call& call) {
  if (call.integer("background_id", 0) != 0)
    call.refuse("another background_id than 0; expected 0");
  const Operand classes = call.slice(call.input(0), 1, 1, kEndOfBoxes);
  const Dims by_anchor{kUnknownSize, kUnknownSize};
  const Operand scores =
      call.add("ReduceMax", {classes}, {{"axes", Dims{1}}, {"keepdims", std::int64_t{0}}},
               {Element::kFloat, by_anchor});
  const Operand ids = call.cast(
      call.add("ArgMax", {classes}, {{"axis", std::int64_t{1}}, {"keepdims", std::int64_t{0}}},
               {Element::kInt64, by_anchor}),
      Element::kFloat);
  const Operand moves =
      call.reshape(call.input(1), {0, -1, 4}, Dims{kUnknownSize, kUnknownSize, 4});
  Operand boxes = decoded(call, moves, centers_of(call, call.input(2)),
                          call.numbers("variances", {0.1, 0.1, 0.2, 0.2}), 0);
  if (call.flag("clip", true)) {
    boxes = call.add(
        "Clip",
        {boxes, call.writer.number(0, Element::kFloat), call.writer.number(1, Element::kFloat)}, {},
        form_of(boxes));
  }
  Operand rows = call.concat({call.unsqueeze(ids, {2}), call.unsqueeze(scores, {2}), boxes}, 2);
  rows.dims = Dims{kUnknownSize, kUnknownSize, 6};
  const double threshold = call.number("threshold", 0.01);
  const auto is_valid = [&](const Operand& of) {
    return call.add("GreaterOrEqual", {of, call.writer.number(threshold, Element::kFloat)}, {},
                    {Element::kBool, by_anchor});
  };
  const Operand low = call.writer.number(kLowest, Element::kFloat);
  const Operand key = call.where(is_valid(scores), scores, low);
  rows = rows_at(call, rows, best_places(call, key, call.size(scores, 1), kUnknownSize));
  const Operand sorted_scores = column_of(call, rows, 1), sorted_ids = column_of(call, rows, 0);
  const Operand valid = is_valid(sorted_scores);
  Operand looked_at = valid;
  if (const std::int64_t topk = call.integer("nms_topk", -1); topk > 0) {
    const Operand last = call.writer.number(static_cast<double>(topk), Element::kFloat);
    const Operand is_early = call.add("Less", {positions_of(call, sorted_scores), last}, {},
                                      {Element::kBool, Dims{kUnknownSize}});
    looked_at = call.add("And", {valid, is_early}, {}, {Element::kBool, by_anchor});
  }
  Candidates candidates{call.slice(rows, 2, 2, 6), sorted_scores, sorted_ids, looked_at};
  if (call.flag("force_suppress")) candidates.ids = {};
  const Operand kept = survivors(call, candidates, call.number("nms_threshold", 0.5));
  const Operand gone = call.writer.number(-1, Element::kFloat);
  const Operand marked = call.where(kept, sorted_ids, gone);
  const Operand all =
      call.concat({call.unsqueeze(marked, {2}), call.slice(rows, 2, 1, kEndOfBoxes)}, 2);
  Operand result = call.where(call.unsqueeze(valid, {2}), all, gone);
  result.dims = rows.dims;
  return {result};
}

constexpr TranslationRow kDetectionRows[] = {
    {"_contrib_box_decode", box_decode},
    {"_contrib_box_nms _contrib_box_non_maximum_suppression", box_nms},
    {"_contrib_MultiBoxPrior", multibox_prior},
    {"_contrib_MultiBoxDetection", multibox_detection},
};

}  // namespace

std::span<const TranslationRow> detection_rows() {
  return kDetectionRows;
}

}  // namespace mezzo::convert::mxnet

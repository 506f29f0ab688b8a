#include "convert/candidate.h"

#include <algorithm>

#include "convert/store.h"

namespace mezzo::convert {

void write_candidate(const std::filesystem::path& original, const OpsetChoice& opset,
                     const ConvertPolicy& policy, const Evidence& evidence, Storage storage,
                     const std::filesystem::path& path) {
  const std::unique_ptr<Document> opened = open_raised(original, opset.opset);
  Document& document = *opened;
  const Graph graph(document, policy.custom_operators());
  Constants constants(graph, policy.low());
  const Decisions decisions = decide(graph, policy, constants, evidence);
  const bool external = has_external(document);
  const Changes changes = apply(document, graph, decisions, constants, policy.low(), storage);
  if (is_unchanged(document, opset, decisions, changes)) {
    copy_model(opset.for_age ? *open_raised(original, 0) : document, path);
  } else {
    store_model(document, path, external);
  }
}

bool is_unchanged(Document& document, const OpsetChoice& opset, const Decisions& decisions,
                  const Changes& changes) {
  if (document.model().is_clean()) return true;
  return opset.for_age && changes.low_weights == 0 &&
         std::ranges::none_of(decisions.low, [](bool low) { return low; });
}

Storage storage_of(const Options& options) {
  if (options.weights_only) return Storage::kWeightsOnly;
  return options.cast_optional_params ? Storage::kConverted : Storage::kRuntimeCast;
}

}  // namespace mezzo::convert

#include "convert/candidate.h"

#include "convert/choose_opset.h"
#include "convert/store.h"

namespace mezzo::convert {

void write_candidate(const std::filesystem::path& original, int opset, const ConvertPolicy& policy,
                     const Evidence& evidence, Storage storage, const std::filesystem::path& path) {
  const std::unique_ptr<Document> opened = open_raised(original, opset);
  Document& document = *opened;
  const Graph graph(document, policy.custom_operators());
  Constants constants(graph, policy.low());
  const Decisions decisions = decide(graph, policy, constants, evidence);
  const bool external = has_external(document);
  apply(document, graph, decisions, constants, policy.low(), storage);
  store_model(document, path, external);
}

Storage storage_of(const Options& options) {
  if (options.weights_only) return Storage::kWeightsOnly;
  return options.cast_optional_params ? Storage::kConverted : Storage::kRuntimeCast;
}

}  // namespace mezzo::convert

// A model as a set of decisions would make it, for judges.
#pragma once

#include <filesystem>
#include <memory>

#include "convert/decide/decide.h"
#include "convert/prepare/prepare.h"
#include "convert/rewrite/apply.h"

namespace mezzo::convert {

/// Decides about `original`, raised as was chosen and folded as the options ask, and writes to
/// `path` what a conversion would, to the byte where the storage is that of the options.
void write_candidate(const std::shared_ptr<ModelFile>& original, const OpsetChoice&,
                     const ConvertPolicy&, const Evidence&, Storage,
                     const std::filesystem::path& path);

/// Is the original the result of what was applied to the document? A model that was raised for the
/// sake of Casts alone stays as it was if nothing was folded or goes low.
bool is_unchanged(Document&, const OpsetChoice&, bool is_folded, const Decisions&, const Changes&);

/// How the options have a result stored.
Storage storage_of(const Options&);

}  // namespace mezzo::convert

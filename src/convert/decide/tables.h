// Tables of weights that float32 is computed with: where they are stored in 16 bits all the same.
#pragma once

#include <vector>

#include "convert/decide/decide.h"

namespace mezzo::convert {

/// So many weights are worth a Cast: what storing them in 16 bits saves is several times what the
/// Cast takes in the file.
inline constexpr std::int64_t kWeightsPerCast = 256;

/// Is the constant large enough that a Cast costs less than its bytes?
bool is_worth_a_cast(const Constants&, ValueId constant);

/// May that reader of a table read rounded numbers: does it move them or add them to something, and
/// is it float32 for the sake of what is around it, not of its digits? The slots must be settled.
bool reads_rounded_numbers(const Graph&, const SlotMap&, ValueId table, std::size_t use);

/// The large constants of a graph that hold learned rows, whose rounding harms nothing. The slots
/// must be settled.
std::vector<ValueId> tables_of_weights(const Graph&, const ConvertPolicy&, Constants&,
                                       const SlotMap&);

/// Per slot: may it become low for the sake of a table? Such slots are float32 in an answer (`low`)
/// without being pinned, and belong to nodes that only move tables.
std::vector<bool> slots_of_moved_tables(const Graph&, const SlotMap&,
                                        const std::vector<ValueId>& tables,
                                        const std::vector<bool>& low);

/// The answer of place_casts() once more, where the bytes of tables count as Casts do: it changes
/// nothing but slots that only move tables, so that nothing else is rounded.
std::vector<bool> place_casts_for_tables(const Graph&, const ConvertPolicy&, const SlotMap&,
                                         const Constants&, const std::vector<ValueId>& tables,
                                         const std::vector<bool>& low);

/// The tables that readers of float32 are left for, all of whom may read rounded numbers: they are
/// stored low, behind a Cast.
std::vector<ValueId> tables_behind_casts(const Graph&, const Decisions&,
                                         const std::vector<ValueId>& tables);

/// The tables that a plan names; plans of older versions name none. Those that would overflow in
/// this checkpoint are not among them.
std::vector<ValueId> planned_tables(const Graph&, Constants&, const SlotMap&, const Plan&);

}  // namespace mezzo::convert

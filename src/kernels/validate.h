#pragma once

#include "kernels/ops.h"

namespace mererun {

// Every backend calls these at the head of an op, so that an illegal call fails alike everywhere.
// A view of no rows is legal (the op does nothing). All throw Error kInvalidArgument naming op and field.

/// Shapes, dtypes, alignment and aliasing. Reads no element, so it serves views of any device.
void validate(const EmbedRowsParams& p);
void validate(const LinearParams& p);
void validate(const SelectedRowsParams& p);
void validate(const GatedLinearParams& p);
void validate(const SwigluParams& p);
void validate(const RmsNormParams& p);
void validate(const GatedRmsNormParams& p);
void validate(const AddRowsParams& p);
void validate(const ArgmaxRowsParams& p);
void validate(const AttentionPrepareParams& p);
void validate(const AttendParams& p);
void validate(const DeltaPrepareParams& p);
void validate(const DeltaStepParams& p);
void validate(const DeltaReplayParams& p);
void validate(const AdvanceWindowParams& p);
void validate(const RouteExpertsParams& p);
void validate(const ExpertMlpParams& p);
void validate(const GroupedRmsNormParams& p);
void validate(const StreamSiluParams& p);
void validate(const MixStreamsParams& p);
void validate(const AddToStreamsParams& p);
void validate(const NgramGateParams& p);
void validate(const NgramConvParams& p);
void validate(const IndexPrepareParams& p);
void validate(const SelectBlocksParams& p);
void validate(const AttendBlocksParams& p);

/// Values that index memory, for views the host can read: ids in range, expert ids ascending, positions
/// consecutive and inside the pages and the rope table, pages present, blocks complete and ascending.
void validate_contents(const EmbedRowsParams& p);
void validate_contents(const AttentionPrepareParams& p);
void validate_contents(const AttendParams& p);
void validate_contents(const RouteExpertsParams& p);
void validate_contents(const ExpertMlpParams& p);
void validate_contents(const IndexPrepareParams& p);
void validate_contents(const SelectBlocksParams& p);
void validate_contents(const AttendBlocksParams& p);

/// A weight as a backend may be given it. Errors: kInvalidArgument for missing arrays or sizes below 1;
/// kUnsupported for bits, group or dtype outside LinearSource's list; both name source.name.
void validate(const LinearSource& source);

}  // namespace mererun

#pragma once

#include <vector>

namespace mererun {

/// Draft cost from times measured on this machine, all in one unit.
struct MeasuredCost {
  std::vector<double> verify;  // [W] verify[w - 1] is the time of a verification of width w; each > 0
  double flush = 0;            // evaluating the history's waiting transitions, once in a drafting round; >= 0
  double draft_step = 0;       // one draft; >= 0
  double waiting_row = 0;      // evaluating one waiting transition more than a drafting round leaves; >= 0
};

/// What rounds take by the number of their drafts: measured once, then corrected by every round. Outlives the
/// requests that use it, so that what one learns serves the next.
///
/// A time is the machine's pace times the depth's own share. A round moves the pace fast, since a machine
/// that slows down does so for every depth, and the shares slowly: of what it was off they keep little, so
/// that a disturbed moment, or the scatter of rounds, does not reorder the depths.
///
/// Thread-safety: thread-compatible.
class RoundTimes {
 public:
  /// Errors: kInvalidArgument for times out of range, or none.
  explicit RoundTimes(const MeasuredCost& cost);

  int max_depth() const { return static_cast<int>(shares_.size()) - 1; }
  /// Of a round with `depth` drafts.
  double of(int depth) const { return pace_ * shares_[static_cast<std::size_t>(depth)]; }
  /// Of one draft more and its row: the mean over all depths, which scatters less than a difference of two.
  double of_one_more() const {
    return max_depth() > 1 ? (of(max_depth()) - of(1)) / (max_depth() - 1) : of(1);
  }
  double of_waiting_row() const { return pace_ * waiting_row_; }

  /// Learns from a round of `depth` drafts that took `seconds`.
  void observe(int depth, double seconds);

  /// True when the next round should be serial, so that the times which decide between drafting and not are
  /// of one moment: often while little is known, then one round in 49.
  bool wants_serial() const { return has_observed_ && rounds_since_serial_ >= serial_gap_; }

  /// True when rounds have been serial for so long that what is known of drafting ones may be wrong, as it is
  /// where the measurement was disturbed: one draft corrects it. After 256 serial rounds, then 512, up to
  /// 4,096.
  bool wants_draft() const { return serial_run_ >= draft_gap_; }
  /// A round that was wanted so has been made, whether or not its time could be observed.
  void tried_draft();

 private:
  void end_serial_run();

  std::vector<double> shares_;  // [D + 1]
  std::vector<int> seen_;       // [D + 1] rounds observed
  double waiting_row_;
  double pace_ = 1;
  bool has_observed_ = false;
  int rounds_since_serial_ = 0;  // drafting ones
  int serial_gap_;
  int serial_run_ = 0;  // serial rounds since the last drafting one of which something was learnt
  int draft_gap_;
  int drafts_tried_ = 0;  // of those that wants_draft asked for
};

}  // namespace mererun

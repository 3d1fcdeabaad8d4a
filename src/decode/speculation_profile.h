#pragma once

#include <vector>

namespace mererun {

/// Where the time of a request's rounds went, in seconds. Measuring waits for the device after every phase,
/// so a profiled run is no speed evidence.
struct SpeculationProfile {
  struct Round {
    int draft_depth = 0;
    int accepted_drafts = 0;
    double draft_submit = 0;
    double draft_wait = 0;
    double verify_submit = 0;
    double verify_wait = 0;
    double accept = 0;  // choosing and giving out tokens
    double commit = 0;
  };
  std::vector<Round> rounds;  // drafted ones
  int serial_rounds = 0;      // depth-0 steps
  double serial_seconds = 0;
  double sampling_seconds = 0;  // part of accept and of serial_seconds spent choosing
};

}  // namespace mererun

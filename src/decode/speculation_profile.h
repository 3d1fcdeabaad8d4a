#pragma once

#include <vector>

namespace mererun {

/// Where the time of a request's rounds went, in seconds. Measuring waits for the device after every phase,
/// so a profiled run is no speed evidence.
struct SpeculationProfile {
  struct Round {
    int draft_depth = 0;  // 0 where drafts were asked for and none came, or they were given up
    int accepted_drafts = 0;
    double draft_submit = 0;
    double draft_wait = 0;
    double verify_submit = 0;
    double verify_wait = 0;
    double accept = 0;  // choosing and giving out tokens
    double commit = 0;
  };
  std::vector<Round> rounds;  // those that asked for drafts
  int serial_rounds = 0;      // those that did not
  double serial_seconds = 0;
  double sampling_seconds = 0;  // part of accept and of serial_seconds spent choosing
};

}  // namespace mererun

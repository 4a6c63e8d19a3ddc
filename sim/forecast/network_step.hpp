#pragma once

#include <string>
#include <vector>

#include "model/hardware/network_fabric.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// How full a link of the fabric is while the step waits; see HotLink.
struct LinkLoad {
  double utilisation = 0.0;
  ByAxis<double> share;
};

/// Messages that follow each other over shared links, of the replica that the timeline shows or of all.
struct SharedMessages {
  struct Message {
    Ticks start = 0;
    Ticks end = 0;
    Ticks alone = 0;  ///< what it takes with its links to itself
  };
  std::string name;  ///< "dp of rank 3", "activations 0 to 1"
  Axis axis = Axis::kData;
  std::string link;  ///< on its way, the one that is fullest while the step waits
  std::vector<Message> messages;
};

/// A step whose messages share links.
struct NetworkStep {
  Timeline timeline;             ///< of one replica's pipeline, which ends last
  ByAxis<double> inside_passes;  ///< seconds by which messages inside passes lengthen them, mean over its ranks
  NetworkResult result;          ///< with the ten hottest links
  std::vector<HotLink> links;    ///< all that carry something while the step waits, fullest first
  std::vector<LinkLoad> loads;   ///< by link of the fabric
  std::vector<SharedMessages> messages;
};

/// Plays the step of a job whose cluster has a network: a pipeline for each class of replicas, whose messages between
/// nodes are flows of forecast/wiring.hpp.
///
/// A pass is computation, then what of its communication nothing hides, one message an axis. What it hides starts with
/// the pass and must be through before that. Messages of a boundary follow each other; they pay latency ahead of their
/// bytes. Gradients are reduced, and weights handed out, as one message of all replicas, which starts with the last of
/// them. The rest is as sim/lower has it: with links that are never full the times are the same, to the picosecond.
/// Contention: along the chain of work and messages that ends the step, what each message takes longer than alone, in
/// proportion, so that it sums to what sharing adds.
/// Left out: asynchronous schedules and parameter servers, which prepare refuses.
NetworkStep simulate_on_network(const PreparedStep& step);

/// The time of that step alone, on each of the allocations or, without any, on its own.
std::vector<double> network_step_seconds(const PreparedStep& step, const std::vector<Allocation>& allocations = {});

/// Step times with the seed of the job's network and those after it, where paths are hashed.
PathSamples sample_paths(PreparedStep step, int samples);

}  // namespace flopcast

#pragma once

#include <string>
#include <string_view>

namespace flopcast {

/// Answers a question of the page, JSON for JSON:
///   {"ask": "simulate", "job": {…}}   what `flopcast simulate job.json --format json` prints, byte for byte
///   {"ask": "view", "job": {…}}       the same as a view of reports/html/page.hpp, timeline and memory included
///   {"ask": "view", "schedule": {"name", "pp", "microbatches", "vpp", "forward", "backward", "weight", "p2p"}}
///                                     a schedule without a job: times of a rank's whole share of a microbatch, in any
///                                     unit; "weight" is the part W of "backward"; "vpp" is the schedule's default
///                                     where it is absent, and counts only for schedules of several chunks
///   {"ask": "plan", "job": {…}}       what `flopcast plan job.json --format json` prints: the job's layout holds what
///                                     is fixed, at least global_batch_size
///   {"ask": "export", "as": "svg" | "html" | "trace", "job" or "schedule": {…}}
///                                     {"text": what --svg, --html or --trace writes of it}; of a job also "job", the
///                                     job file, and "command", which asks the program the same
///   {"ask": "names"}                  models, clusters with their devices a node, stacks, schedules with the chunks a
///                                     rank that they accept, the terms of reports/html/page.hpp, and the words that
///                                     `flopcast explain` knows
/// "config" beside a job is the text of a Hugging Face config.json: the job's model. A mistake in the question comes
/// back as {"error": {"field", "problem", "where", "help"}}. The page reads no files: a job that names one is refused,
/// and so is a view of more than 100,000 actions.
std::string answer(std::string_view question);

}  // namespace flopcast

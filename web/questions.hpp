#pragma once

#include <string>
#include <string_view>

namespace flopcast {

/// Answers a question of the page, JSON for JSON:
///   {"ask": "simulate", "job": {…}}   same output as `flopcast simulate job.json --format json`
///   {"ask": "view", "job": {…}}       the same as a view of reports/html/page.hpp, including timeline and memory
///   {"ask": "view", "schedule": {"name", "pp", "microbatches", "vpp", "forward", "backward", "weight", "p2p"}}
///                                     a schedule without a job: times of a rank's whole share of a microbatch, in any
///                                     unit; "weight" is the part W of "backward"; "vpp" defaults to the schedule's
///                                     number of chunks, and is used only by schedules with several chunks
///   {"ask": "plan", "job": {…}}       same output as `flopcast plan job.json --format json`: the job's layout has the
///                                     fixed keys, at least global_batch_size
///   {"ask": "export", "as": "svg" | "html" | "trace", "job" or "schedule": {…}}
///                                     {"text": output of --svg, --html or --trace}; for a job also "job", the job
///                                     file, and "command", the equivalent command line
///   {"ask": "names"}                  models, clusters with their devices per node, stacks, schedules with the numbers
///                                     of chunks per rank that they accept, the terms of reports/html/page.hpp, and the
///                                     terms that `flopcast explain` knows
/// A "config" next to a job is the text of a Hugging Face config.json: the job's model. Errors in the question are
/// returned as {"error": {"field", "problem", "where", "help"}}. The page reads no files: jobs that name one are
/// refused, as are views of more than 100,000 actions.
std::string answer(std::string_view question);

}  // namespace flopcast

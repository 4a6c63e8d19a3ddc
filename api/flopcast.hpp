#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

/// flopcast as a library: what the program forecasts, as functions. Needs the standard library alone. Functions may be
/// called from several threads at once, and keep nothing between calls.
///
/// Errors are those of base/text/error.hpp: ConfigError (the input is wrong; field, problem, place, help),
/// NegativeAnswer (a valid question whose answer is no), EnvironmentError (the machine failed), InternalError (a bug).
///
/// Stable: within a major version names, units and keys stay, and later versions only add.
namespace flopcast {

/// "0.1.0"
const char* library_version();

/// A job as the command line takes it: files, a later one winning over an earlier one, a text over them, keys over all.
struct JobInput {
  /// A job file, or a file of another program that `flopcast convert` reads. Paths in it are relative to the working
  /// directory. Empty: none. Places in complaints begin with "-:".
  std::string text = {};
  /// Paths of further ones, below the text in rank.
  std::vector<std::string> files = {};
  /// Keys of the job file by path, flag or last word of the path ("layout.tp", "tp", "micro_batch_size"), each with its
  /// value as a flag has it ("8", "dgx-a100-80g", "true", "1,2,3", or JSON for objects).
  std::vector<std::pair<std::string, std::string>> keys = {};
};

/// Laws of a researcher in the place of flopcast's own. An empty function is ours. They are called from the thread that
/// asked, and for every stage, pass and collective: milliseconds in them are milliseconds each.
struct OwnLaws {
  /// The order of every pipeline rank: cells such as "0F0", "2B1", "1I0", "1W0" in the words of
  /// torch.distributed.pipelining, by rank; an empty cell is idle. `chunks` is the job's vpp, 1 where it says none.
  /// In the place of layout.schedule; refused where the order cannot be executed.
  std::function<std::vector<std::vector<std::string>>(int pipeline_ranks, int microbatches, int chunks)> schedule = {};
  /// Seconds of a pass of an operator for one microbatch on one device. `op` is its name ("qkv", "mlp up", …), `pass`
  /// "forward", "input_gradient" or "weight_gradient", `ours` what flopcast takes it for.
  std::function<double(const std::string& op, const std::string& pass, double ours)> operator_time = {};
  /// Seconds of a collective of `bytes` (as nccl-tests prints them) over `ranks` devices on `nodes` nodes. `kind` is
  /// "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send".
  std::function<double(const std::string& kind, double bytes, int ranks, int nodes, double ours)> network_time = {};

  /// Whether any of them is.
  bool given() const { return schedule || operator_time || network_time; }
};

/// One training step, forecast.
class SimulatedStep {
 public:
  struct Parts;
  /// Of simulate().
  explicit SimulatedStep(std::shared_ptr<const Parts> parts);

  double time_s() const;                      ///< of the step, seconds
  double mfu() const;                         ///< attention in full
  double bubble_fraction() const;             ///< of ranks times step time
  double peak_memory_gib() const;             ///< of the fullest rank, GiB (2^30 bytes): tensors
  bool fits() const;                          ///< whether every rank's memory suffices
  std::vector<std::string> warnings() const;  ///< sentences that `flopcast simulate` prints on standard error

  /// Schema flopcast.result/1, byte for byte what `flopcast simulate --format json` prints.
  std::string json() const;
  /// Schema flopcast.memory/1, as `flopcast memory`. `view`: "peak", "over-time" or "tensors" (of the fullest rank).
  std::string memory_json(const std::string& view = "peak") const;
  /// Schema flopcast.timeline/1, as `flopcast timeline`.
  std::string timeline_json() const;
  /// What every rank does when, as an SVG.
  std::string timeline_svg() const;
  /// A trace for Perfetto or chrome://tracing.
  std::string chrome_trace() const;
  /// For simulators of packets: the Chakra execution trace (MLCommons, protobuf) of a device, the groups of all
  /// devices' collectives and ASTRA-sim's analytical network; reports/timeline/writers.hpp says what is in them.
  std::string chakra_trace(int rank) const;
  /// Of the same: the groups, JSON.
  std::string chakra_groups() const;
  /// Of the same: the network, YAML.
  std::string chakra_network() const;
  /// Devices of the job.
  int devices() const;
  /// The report, one HTML file that loads nothing.
  std::string html() const;
  /// The tables of `flopcast simulate`; `format` is "table", "markdown", "latex" or "csv".
  std::string tables(const std::string& format = "table") const;
  /// The job, completed: read again it gives this forecast.
  std::string job_json() const;

 private:
  std::shared_ptr<const Parts> parts_;
};

/// Throws ConfigError, also where a law gives a time that is negative or no number.
SimulatedStep simulate(const JobInput& input, const OwnLaws& laws = {});

/// What a command of the program answers in this process.
struct CommandAnswer {
  std::string text;   ///< what it prints, data
  std::string notes;  ///< what it tells beside: warnings and progress, lines
};
/// Runs `flopcast ARGUMENTS…`. A JOB "-" or a file "-" reads `input`. Throws like the functions above in the place of
/// exit codes; of an answer that is no, what was printed before is in `printed`, where it is given.
CommandAnswer answer_command(const std::vector<std::string>& arguments, const std::string& input = "",
                             std::string* printed = nullptr);
/// A question of the program, by the command's name ("plan", "schedule show"). Files of `input` stand in the order of
/// the command's files; its keys may be the question's own ("objective", "max_gpus"), "true" for a flag, and one that
/// may be given several times stands several times.
struct AskedQuestion {
  std::string name = {};               ///< of the command
  JobInput input = {};                 ///< what it is asked of
  std::vector<std::string> rest = {};  ///< what follows a bare "--"
};
/// Answers as the program does, without its command line. `format`: "json", any other of `flopcast --format`, or empty
/// for the question's own. Keys may name files to write, "svg", "html", "trace", "output". Throws like answer_command.
CommandAnswer answer_question(const AskedQuestion& asked, const std::string& format = "json",
                              std::string* printed = nullptr);
/// The figure that the program writes with --svg.
std::string draw_question(const AskedQuestion& asked);
/// The arguments that give a command these keys: "--tp", "8". A key that no job has becomes "--name".
std::vector<std::string> flags_of(const std::vector<std::pair<std::string, std::string>>& keys);
/// Whether a name is a key of a job: a path, a flag, or the last word of one path only.
bool is_job_key(const std::string& name);

/// Layouts of one job, a row each, by column. Keys: nodes, tp, pp, cp, ep, vpp, micro_batch_size, global_batch_size,
/// zero, sequence_parallel (0 or 1), recompute (0 none, 1 selective, 2 full), schedule (an index into `schedules`).
/// What is not listed is as the job has it; a column of one row stands for all. dp is what the devices leave over.
struct LayoutColumns {
  std::size_t rows = 0;                                          ///< how many layouts
  std::map<std::string, std::vector<std::int32_t>> values = {};  ///< by key, a value a layout or one for all
  std::vector<std::string> schedules = {};                       ///< names, with chunks or variants: "interleaved:2"
};

/// By row. A layout that breaks a rule has no time (not a number) and a reason; one that does not fit has both figures.
struct LayoutPrices {
  std::vector<double> time_s;         ///< of one step
  std::vector<double> memory_gib;     ///< of the fullest rank, as nvidia-smi shows it
  std::vector<std::uint8_t> fits;     ///< 0 or 1
  std::vector<std::uint16_t> reason;  ///< index into `reasons`; 0: none
  std::vector<std::string> reasons;   ///< the first is empty
};

/// How a price is made.
enum class PriceKind {
  /// The schedule simulated: equal to simulate().time_s().
  kSimulated,
  /// What no order of the schedule's actions undercuts, gradient buckets beside the passes free (planner/bounds): the
  /// planner's bound, several times as fast. Of 1F1B it is the step time wherever passes, not buckets, decide it.
  kBound,
};

/// Prices of many layouts, over `threads` threads (0: one for each core). Throws ConfigError for an unknown column, a
/// column of another length, or a job without a transformer.
LayoutPrices price_layouts(const JobInput& input, const LayoutColumns& layouts, PriceKind kind = PriceKind::kSimulated,
                           int threads = 0);

/// Prices of single layouts of one job, which is read once. Not for two threads at once.
class LayoutPricer {
 public:
  /// Throws ConfigError where the job is none, or has no transformer.
  explicit LayoutPricer(const JobInput& job);
  LayoutPricer(const LayoutPricer&) = delete;
  LayoutPricer& operator=(const LayoutPricer&) = delete;
  ~LayoutPricer();

  /// Of one layout.
  struct Price {
    double time_s = 0.0;      ///< of one step
    double memory_gib = 0.0;  ///< of the fullest rank, as nvidia-smi shows it
    bool fits = false;        ///< whether it is less than the device has
  };
  /// Keys as the columns of LayoutColumns; `schedule` by name, empty: the job's. Throws ConfigError with the rule that
  /// is broken.
  Price price(const std::vector<std::pair<std::string, int>>& layout, const std::string& schedule = "",
              PriceKind kind = PriceKind::kSimulated);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Every layout that the planner enumerates for the job: what its layout section fixes stays. Columns of LayoutColumns.
LayoutColumns enumerate_layouts_of(const JobInput& input);

}  // namespace flopcast

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

/// flopcast as a library: the forecasts of the program as functions. Needs only the standard library. Functions may be
/// called from several threads at once and keep no state between calls.
///
/// Errors are those of base/text/error.hpp: ConfigError (invalid input, with field, problem, place and help),
/// NegativeAnswer (a valid question with a negative answer), EnvironmentError (the machine failed), InternalError (a
/// bug).
///
/// Stable: within a major version, names, units and keys stay, and later versions only add to them.
namespace flopcast {

/// "0.1.0"
const char* library_version();

/// A job as the command line accepts it: files, of which later ones override earlier ones; a text, which overrides
/// them; and keys, which override everything.
struct JobInput {
  /// A job file, or a file of another program that `flopcast convert` reads. Paths in it are relative to the working
  /// directory. May be empty. Error messages refer to places in it as "-:LINE:COLUMN".
  std::string text = {};
  /// Paths of further files, which the text overrides.
  std::vector<std::string> files = {};
  /// Keys of the job file by path, flag or last word of the path ("layout.tp", "tp", "micro_batch_size"), each with its
  /// value as for a flag ("8", "dgx-a100-80g", "true", "1,2,3", or JSON for objects).
  std::vector<std::pair<std::string, std::string>> keys = {};
};

/// User-defined functions that replace flopcast's models. An empty function selects flopcast's. They are called on the
/// caller's thread, for every stage, pass and collective, so their run time adds up.
struct OwnLaws {
  /// Order of actions on every pipeline rank: cells such as "0F0", "2B1", "1I0", "1W0" in the notation of
  /// torch.distributed.pipelining, by rank; an empty cell is idle. `chunks` is the job's vpp, or 1 if it has none.
  /// Replaces layout.schedule; throws ConfigError if the order cannot be executed.
  std::function<std::vector<std::vector<std::string>>(int pipeline_ranks, int microbatches, int chunks)> schedule = {};
  /// Seconds for a pass of an operator over one microbatch on one device. `op` is the operator's name ("qkv", "mlp up",
  /// …), `pass` is "forward", "input_gradient" or "weight_gradient", `ours` is flopcast's value.
  std::function<double(const std::string& op, const std::string& pass, double ours)> operator_time = {};
  /// Seconds for a collective of `bytes` (as nccl-tests reports them) over `ranks` devices on `nodes` nodes. `kind` is
  /// "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send"; `ours` is flopcast's value.
  std::function<double(const std::string& kind, double bytes, int ranks, int nodes, double ours)> network_time = {};

  /// True if any of the functions is given.
  bool given() const { return schedule || operator_time || network_time; }
};

/// Forecast of one training step.
class SimulatedStep {
 public:
  struct Parts;
  /// Used by simulate().
  explicit SimulatedStep(std::shared_ptr<const Parts> parts);

  double time_s() const;                      ///< step time, seconds
  double mfu() const;                         ///< counts attention in full, not causal-halved
  double bubble_fraction() const;             ///< fraction of ranks times step time
  double peak_memory_gib() const;             ///< tensors on the fullest rank, GiB (2^30 bytes)
  bool fits() const;                          ///< true if the memory of every rank suffices
  std::vector<std::string> warnings() const;  ///< sentences that `flopcast simulate` prints on standard error

  /// Schema flopcast.result/1, identical to the output of `flopcast simulate --format json`.
  std::string json() const;
  /// Schema flopcast.memory/1, as from `flopcast memory`. `view`: "peak", "over-time" or "tensors" (of the fullest
  /// rank).
  std::string memory_json(const std::string& view = "peak") const;
  /// Schema flopcast.timeline/1, as from `flopcast timeline`.
  std::string timeline_json() const;
  /// SVG of the timeline of every rank.
  std::string timeline_svg() const;
  /// A trace for Perfetto or chrome://tracing.
  std::string chrome_trace() const;
  /// For packet simulators: the Chakra execution trace (MLCommons, protobuf) of a device, the groups of all devices'
  /// collectives and ASTRA-sim's analytical network; reports/timeline/writers.hpp documents their contents.
  std::string chakra_trace(int rank) const;
  /// Groups that belong to the Chakra traces, JSON.
  std::string chakra_groups() const;
  /// Network that belongs to the Chakra traces, YAML.
  std::string chakra_network() const;
  /// Number of devices of the job.
  int devices() const;
  /// The report: one self-contained HTML file.
  std::string html() const;
  /// The tables of `flopcast simulate`; `format` is "table", "markdown", "latex" or "csv".
  std::string tables(const std::string& format = "table") const;
  /// The job with every default filled in; read again, it gives the same forecast.
  std::string job_json() const;

 private:
  std::shared_ptr<const Parts> parts_;
};

/// Throws ConfigError, also if a user-defined function returns a time that is negative or not finite.
SimulatedStep simulate(const JobInput& input, const OwnLaws& laws = {});

/// Answer of a command that runs in this process.
struct CommandAnswer {
  std::string text;   ///< what the command prints on standard output
  std::string notes;  ///< what it prints on standard error: warnings and progress, in lines
};
/// Runs `flopcast ARGUMENTS…`. JOB "-" or a file "-" reads `input`. Throws like the functions above instead of
/// returning an exit code; before it throws NegativeAnswer, it stores the text printed so far in `printed`, if not
/// null.
CommandAnswer answer_command(const std::vector<std::string>& arguments, const std::string& input = "",
                             std::string* printed = nullptr);
/// A question of the program, by the name of its command ("plan", "schedule show"). Files of `input` are in the order
/// of the command's files; its keys may be options of the command ("objective", "max_gpus"), "true" sets a flag, and an
/// option that may be repeated may occur several times.
struct AskedQuestion {
  std::string name = {};               ///< name of the command
  JobInput input = {};                 ///< files, text and keys of the job
  std::vector<std::string> rest = {};  ///< arguments after a bare "--"
};
/// Answers as the program does, without its command line. `format`: "json", any other of `flopcast --format`, or empty
/// for the question's default. Keys may name output files: "svg", "html", "trace", "output". Throws like
/// answer_command.
CommandAnswer answer_question(const AskedQuestion& asked, const std::string& format = "json",
                              std::string* printed = nullptr);
/// Figure that the program writes with --svg.
std::string draw_question(const AskedQuestion& asked);
/// Arguments that give a command these keys: "--tp", "8". A name that is not a key of the job becomes "--name".
std::vector<std::string> flags_of(const std::vector<std::pair<std::string, std::string>>& keys);
/// True if the name is a key of a job: a path, a flag, or the last word of exactly one path.
bool is_job_key(const std::string& name);

/// Layouts of one job, one per row, stored by column. Keys: nodes, tp, pp, cp, ep, vpp, micro_batch_size,
/// global_batch_size, zero, sequence_parallel (0 or 1), recompute (0 none, 1 selective, 2 full), schedule (an index
/// into `schedules`). Keys without a column keep the job's value; a column with one value applies to all rows. dp
/// follows from the devices.
struct LayoutColumns {
  std::size_t rows = 0;                                          ///< number of layouts
  std::map<std::string, std::vector<std::int32_t>> values = {};  ///< by key: one value per layout, or one for all
  std::vector<std::string> schedules = {};                       ///< names, with chunks or variants: "interleaved:2"
};

/// Prices by row. A layout that breaks a rule has NaN as time and a reason; one that does not fit has both figures.
struct LayoutPrices {
  std::vector<double> time_s;         ///< step time
  std::vector<double> memory_gib;     ///< of the fullest rank, as shown by nvidia-smi
  std::vector<std::uint8_t> fits;     ///< 0 or 1
  std::vector<std::uint16_t> reason;  ///< index into `reasons`; 0: none
  std::vector<std::string> reasons;   ///< the first is empty
};

/// Method of pricing.
enum class PriceKind {
  /// Simulates the schedule; equal to simulate().time_s().
  kSimulated,
  /// Lower bound for every order of the schedule's actions, with gradient buckets overlapped for free (planner/bounds).
  /// The planner uses this bound, which is several times as fast to compute. For 1F1B it equals the step time wherever
  /// passes, not buckets, determine it.
  kBound,
};

/// Prices of many layouts, computed by `threads` threads (0: one per core). Throws ConfigError for an unknown column, a
/// column of the wrong length, or a job without a transformer.
LayoutPrices price_layouts(const JobInput& input, const LayoutColumns& layouts, PriceKind kind = PriceKind::kSimulated,
                           int threads = 0);

/// Prices single layouts of one job, which is read once. Not thread-safe.
class LayoutPricer {
 public:
  /// Throws ConfigError if the job is invalid or has no transformer.
  explicit LayoutPricer(const JobInput& job);
  LayoutPricer(const LayoutPricer&) = delete;
  LayoutPricer& operator=(const LayoutPricer&) = delete;
  ~LayoutPricer();

  /// Price of one layout.
  struct Price {
    double time_s = 0.0;      ///< step time
    double memory_gib = 0.0;  ///< of the fullest rank, as shown by nvidia-smi
    bool fits = false;        ///< true if the memory suffices
  };
  /// Keys are the columns of LayoutColumns; `schedule` is a name, empty for the job's schedule. Throws ConfigError with
  /// the rule that the layout breaks.
  Price price(const std::vector<std::pair<std::string, int>>& layout, const std::string& schedule = "",
              PriceKind kind = PriceKind::kSimulated);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Every layout that the planner enumerates for the job, with the keys fixed by its layout section. Columns as in
/// LayoutColumns.
LayoutColumns enumerate_layouts_of(const JobInput& input);

}  // namespace flopcast

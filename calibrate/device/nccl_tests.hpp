#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// What the file may not tell, and which of its columns count.
struct NcclTestsRequest {
  std::optional<SampleKind> kind;  ///< given: the file's collective, whatever it says
  std::optional<int> ranks;
  std::optional<int> nodes;
  bool in_place = false;  ///< the in-place columns instead of the out-of-place ones
};

/// Whether the text is what nccl-tests writes with -J rather than what it prints.
bool is_nccl_tests_json(std::string_view text);

/// Reads what nccl-tests prints (all versions: with or without root and redop columns, "#wrong" or "error", N/A, extra
/// columns; every line behind a prefix such as mpirun's "[1,0]<stdout>:", a rank or a timestamp) or its JSON report, of
/// one or several runs. Ranks are counted from the device lines, nodes from their hosts; a file without them tells the
/// ranks by busbw / algbw of its largest message, 2(n-1)/n or (n-1)/n, where that is exact enough.
///
/// Every printed busbw must be what size, time and ranks give, as precisely as it is printed; no result may be marked
/// wrong. Size 0 is left out. Nothing else of the file is taken, least of all its environment. Throws ConfigError with
/// `file:line` or `file:/results/3`; there is no partial answer.
Measurement import_nccl_tests(std::string_view text, const std::string& file, const NcclTestsRequest& request);

/// busbw / algbw of nccl-tests (doc/PERFORMANCE.md): all-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all
/// (n-1)/n; the others 1.
double bus_factor(SampleKind kind, int ranks);

/// One result of a run, before it is a sample. For the two readers.
struct NcclTestsRow {
  double bytes = 0.0;
  std::string dtype;
  std::optional<double> time_us;
  std::optional<double> algbw;
  std::optional<double> busbw;
  double time_precision = 0.0;   ///< half a unit of the last printed digit
  double busbw_precision = 0.0;  ///< the same
  double wrong = 0.0;
  std::string where;
};

struct NcclTestsRun {
  std::optional<SampleKind> kind;
  int ranks = 0;  ///< zero: the file does not tell
  int nodes = 0;
  std::string device;
  std::string where;
  std::vector<NcclTestsRow> rows;
};

std::vector<NcclTestsRun> read_nccl_tests_text(std::string_view text, const std::string& file, bool in_place);
std::vector<NcclTestsRun> read_nccl_tests_json(std::string_view text, const std::string& file, bool in_place,
                                               Measurement& about);
/// The collective that a program's name such as "./build/all_reduce_perf_mpi" tells.
std::optional<SampleKind> kind_of_program(std::string_view text);
/// "float" -> "fp32", "half" -> "fp16", "bfloat16" -> "bf16"; others as they are.
std::string precision_of_nccl(const std::string& type);

}  // namespace flopcast

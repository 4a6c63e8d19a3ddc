#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flopcast {

/// Meaning of "-" as an output file: standard output, or an invalid file name.
enum class Dash { kIsStandardOutput, kIsNoFile };

/// The inputs that a form adds for a result: both, or only one if the command declares the other itself.
enum class OutputInputs { kFormatAndFile, kFormat, kFile };

/// How a command's result is printed.
struct OutputForm {
  OutputInputs inputs = OutputInputs::kFormatAndFile;
  bool format_by_ending = false;  ///< if --format is absent, the extension of the -o file selects the format
  std::string formats = {};       ///< help text of --format; empty: all formats
};

/// The inputs of a command, declared once in help order. A form fills them: the command line from flags, Python from
/// keywords, the web page from JSON. Names are written as users type them, comma separated: "--format,-f". Targets must
/// outlive the form.
class Form {
 public:
  Form() = default;
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;
  virtual ~Form() = default;

  /// Lists the inputs that follow under this heading. `rest` groups come last: --help-all lists all of their inputs,
  /// --help only those with a short name.
  virtual void begin_group(const std::string& title, bool rest = false) = 0;
  virtual void add_positional(const std::string& name, std::optional<std::string>& target, const std::string& help) = 0;
  /// Takes all remaining positional arguments.
  virtual void add_positional(const std::string& name, std::vector<std::string>& target, const std::string& help) = 0;
  virtual void add_option(const std::string& names, std::optional<std::string>& target, const std::string& value_name,
                          const std::string& help) = 0;
  virtual void add_option(const std::string& names, std::optional<int>& target, const std::string& value_name,
                          const std::string& help) = 0;
  /// May be given repeatedly.
  virtual void add_option(const std::string& names, std::vector<std::string>& target, const std::string& value_name,
                          const std::string& help) = 0;
  /// An output file.
  virtual void add_output(const std::string& names, std::optional<std::string>& target, const std::string& help,
                          Dash dash = Dash::kIsNoFile) = 0;
  /// The output file of an additional figure, besides --svg.
  virtual void add_figure(const std::string& names, std::optional<std::string>& target, const std::string& help) {
    add_output(names, target, help);
  }
  virtual void add_flag(const std::string& names, bool& target, const std::string& help) = 0;
  /// Takes everything after a bare --, unchanged.
  virtual void add_rest(std::vector<std::string>& target) = 0;
  /// Calls back with the text. With `takes_value` false it is a flag whose text is "true" or what follows --name=.
  virtual void add_callback(const std::string& name, bool takes_value, const std::string& value_name,
                            const std::string& help, bool listed,
                            const std::function<void(const std::string&)>& callback) = 0;

  /// Text that replaces standard input; null: the real standard input.
  virtual const std::string* input() const { return nullptr; }

  // Hooks for inputs that only some front ends offer: how the result is printed, and files that show it.

  virtual void place_output(const OutputForm& /*output*/ = {}) {}  ///< --format, -o
  virtual void place_drawing() {}                                  ///< options of terminal drawings
  virtual void place_figure(const std::string& /*help*/) {}        ///< --svg
  virtual void place_page(const std::string& /*help*/ = "") {}     ///< --html; empty: the default help text
  virtual void place_trace(const std::string& /*help*/) {}         ///< --trace
};

}  // namespace flopcast

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flopcast {

/// What "-" is in the place of a file to be written: standard output, or nothing that can be written.
enum class Dash { kIsStandardOutput, kIsNoFile };

/// Which inputs a form adds for an answer: both, or one where the question has the other under its own name.
enum class OutputInputs { kFormatAndFile, kFormat, kFile };

/// How a question's answer is printed.
struct OutputForm {
  OutputInputs inputs = OutputInputs::kFormatAndFile;
  bool format_by_ending = false;  ///< the ending of -o's file names a format that is not given
  std::string formats = {};       ///< the help of --format; empty: all formats
};

/// The inputs of a question, declared once in the order of its help. A form fills them: the command line from flags,
/// Python from keywords, the page from JSON. Names are as a user types them, comma separated: "--format,-f". Targets
/// outlive the form.
class Form {
 public:
  Form() = default;
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;
  virtual ~Form() = default;

  /// The inputs that follow are listed under this heading. `rest` are listed last, and all of them by --help-all alone;
  /// --help has those of a short name.
  virtual void begin_group(const std::string& title, bool rest = false) = 0;
  virtual void add_positional(const std::string& name, std::optional<std::string>& target, const std::string& help) = 0;
  /// Takes every positional argument that is left.
  virtual void add_positional(const std::string& name, std::vector<std::string>& target, const std::string& help) = 0;
  virtual void add_option(const std::string& names, std::optional<std::string>& target, const std::string& value_name,
                          const std::string& help) = 0;
  virtual void add_option(const std::string& names, std::optional<int>& target, const std::string& value_name,
                          const std::string& help) = 0;
  /// May be given several times.
  virtual void add_option(const std::string& names, std::vector<std::string>& target, const std::string& value_name,
                          const std::string& help) = 0;
  /// A file to be written.
  virtual void add_output(const std::string& names, std::optional<std::string>& target, const std::string& help,
                          Dash dash = Dash::kIsNoFile) = 0;
  /// The file of a figure besides --svg.
  virtual void add_figure(const std::string& names, std::optional<std::string>& target, const std::string& help) {
    add_output(names, target, help);
  }
  virtual void add_flag(const std::string& names, bool& target, const std::string& help) = 0;
  /// Takes what follows a bare --, as it stands.
  virtual void add_rest(std::vector<std::string>& target) = 0;
  /// Calls back with the text; `takes_value` false makes it a flag that says "true" (or what follows --name=).
  virtual void add_callback(const std::string& name, bool takes_value, const std::string& value_name,
                            const std::string& help, bool listed,
                            const std::function<void(const std::string&)>& callback) = 0;

  /// A text in the place of standard input; null: that itself.
  virtual const std::string* input() const { return nullptr; }

  // The places of inputs that belong to a front end: how an answer is printed, and files that show it.

  virtual void place_output(const OutputForm& /*output*/ = {}) {}  ///< --format, -o
  virtual void place_drawing() {}                                  ///< of drawings in a terminal
  virtual void place_figure(const std::string& /*help*/) {}        ///< --svg
  virtual void place_page(const std::string& /*help*/ = "") {}     ///< --html; empty: the usual words
  virtual void place_trace(const std::string& /*help*/) {}         ///< --trace
};

}  // namespace flopcast

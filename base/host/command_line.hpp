#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host/terminal.hpp"
#include "base/text/form.hpp"

namespace flopcast {

/// As the last argument: prints the words that may come next, one per line, instead of running. Used by shell
/// completion.
inline constexpr const char* kListFlags = "--list-flags";

/// An output file and the flag that names it.
struct OutputOfFlag {
  std::string flag;
  const std::optional<std::string>* file;
  Dash dash;
};
/// Refuses outputs before anything is computed or written: two that name one file, one that is also named as an input
/// among `arguments`, and one that cannot be written. Throws ConfigError or EnvironmentError.
void refuse_clashing_outputs(const std::vector<std::string>& arguments, const std::vector<OutputOfFlag>& outputs);
void require_writable_outputs(const std::vector<OutputOfFlag>& outputs);

/// The flags of one command. A thin wrapper that compiles the parser library only once and gives every error the
/// project's format.
class CommandLine : public Form {
 public:
  /// `name` is the command's name after the program's; empty for a program without commands. `usage` follows "usage: "
  /// and begins with the program; `examples` appear below the description, one per line.
  CommandLine(const Streams& streams, const std::string& name, const std::string& usage, const std::string& description,
              const std::vector<std::string>& examples);
  ~CommandLine() override;

  void begin_group(const std::string& title, bool rest = false) override;
  void add_positional(const std::string& name, std::optional<std::string>& target, const std::string& help) override;
  void add_positional(const std::string& name, std::vector<std::string>& target, const std::string& help) override;
  void add_option(const std::string& names, std::optional<std::string>& target, const std::string& value_name,
                  const std::string& help) override;
  void add_option(const std::string& names, std::optional<int>& target, const std::string& value_name,
                  const std::string& help) override;
  void add_option(const std::string& names, std::vector<std::string>& target, const std::string& value_name,
                  const std::string& help) override;
  /// Rejects two outputs that name the same file, an output that is also read, and one that cannot be written
  /// (EnvironmentError). Several outputs may share a pipe or device.
  void add_output(const std::string& names, std::optional<std::string>& target, const std::string& help,
                  Dash dash = Dash::kIsNoFile) override;
  void add_flag(const std::string& names, bool& target, const std::string& help) override;
  void add_rest(std::vector<std::string>& target) override;
  void add_callback(const std::string& name, bool takes_value, const std::string& value_name, const std::string& help,
                    bool listed, const std::function<void(const std::string&)>& callback) override;

  const std::string* input() const override { return streams().in; }
  /// The streams for help and for options that write to standard output.
  const Streams& streams() const;

  /// Parses the arguments. Returns the text to show instead of running the command, such as the requested help. Throws
  /// ConfigError on bad usage.
  std::optional<std::string> read(const std::vector<std::string>& arguments);
  /// Like read(), but prints the text; returns false if there was one.
  bool parse(const std::vector<std::string>& arguments);

  /// The parsed command in a form that can be pasted into a shell: "flopcast simulate 'my job.json' --tp 8".
  const std::string& typed() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace flopcast

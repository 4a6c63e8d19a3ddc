#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host/terminal.hpp"
#include "base/text/form.hpp"

namespace flopcast {

/// As the last argument: instead of running, print the words that may come next, one a line. For shell completion.
inline constexpr const char* kListFlags = "--list-flags";

/// The flags of one command. A thin wrapper, so that the parser library is compiled once and every complaint has our
/// form.
class CommandLine : public Form {
 public:
  /// The command's name as it follows the program's, empty for a program without commands. `usage` follows "usage: "
  /// and begins with the program; `examples` are shown below the description, one a line.
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
  /// Two outputs that name one file are refused, as is one that is read as well, and one that cannot be written
  /// (EnvironmentError); pipes and devices take several texts.
  void add_output(const std::string& names, std::optional<std::string>& target, const std::string& help,
                  Dash dash = Dash::kIsNoFile) override;
  void add_flag(const std::string& names, bool& target, const std::string& help) override;
  void add_rest(std::vector<std::string>& target) override;
  void add_callback(const std::string& name, bool takes_value, const std::string& value_name, const std::string& help,
                    bool listed, const std::function<void(const std::string&)>& callback) override;

  const std::string* input() const override { return streams().in; }
  /// Where help goes, and what options write without a file.
  const Streams& streams() const;

  /// What is to be shown instead of anything being done: the help, where it was asked for. Throws ConfigError on bad
  /// usage.
  std::optional<std::string> read(const std::vector<std::string>& arguments);
  /// The same, printed: false when there was something to show.
  bool parse(const std::vector<std::string>& arguments);

  /// What was read, as it can be pasted into a shell: "flopcast simulate 'my job.json' --tp 8".
  const std::string& typed() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace flopcast

/// Reads training recipes. Its rules are data: import/keys lists the keys of a program and the field of the job that
/// each becomes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "model/config/document.hpp"

namespace flopcast {

struct Recipe {
  std::string table;  ///< name of the KeyTable
  std::string program;
  JsonValue rules;
};

/// Every value that is not an object, by its path. GPT-NeoX writes some keys with dashes.
using Leaves = std::map<std::string, JsonValue>;

class RecipeReader {
 public:
  RecipeReader(const Recipe& recipe, const nlohmann::json& values, const std::string& file,
               const ImportContext& context);

  ImportedJob read();

 private:
  std::string place(const std::string& path) const;
  [[noreturn]] void fail(const std::string& path, const std::string& problem, const std::string& help) const;
  const nlohmann::json* leaf(const nlohmann::json& path) const;  ///< null if the file does not have it
  const nlohmann::json* rule(const char* group, const std::string& path) const;
  bool read_leaf(const std::string& path, const nlohmann::json& value);
  void read_choice(const std::string& path, const nlohmann::json& value, const nlohmann::json& choices);
  void put_all(const nlohmann::json& fields, const std::string& path);
  void read_any();
  void read_full_precision();
  std::string word_at(const std::string& path) const;
  void read_named(const std::string& path, const nlohmann::json& value, const nlohmann::json& rule);
  void read_shared_width();
  void read_shards();
  void read_named_model();
  void read_replica_batch();
  void read_replica_sizes();
  const nlohmann::json* first_leaf(const nlohmann::json& paths, std::string& path) const;
  void read_block();
  void read_layer_choice();
  void read_adapter();
  void read_packing();
  void read_preference();
  int whole_leaf(const std::string& path, int otherwise) const;
  void finish();

  const Recipe& recipe_;
  const KeyTable& table_;
  const std::string& file_;
  const ImportContext& context_;
  Leaves leaves_;
  std::set<std::string> of_adapter_;  ///< keys read as part of adapters or packing
  ImportedJob out_;
};

/// The text of a value, or its JSON if it is not text.
std::string text_in(const nlohmann::json& value);
std::vector<std::string> keys_in(const nlohmann::json& object);

}  // namespace flopcast

#include "base/text/table.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {
namespace {

Table sample() {
  Table table;
  table.title = "Layouts";
  table.columns = {text_column("schedule"), number_column("step s", "step_s"), number_column("MFU %")};
  table.rows = {{"1f1b", "9.81", "44.6"}, {"interleaved", "10.02", ""}};
  table.notes = {"MFU counts model FLOPs"};
  return table;
}

TEST(TableText, AlignsColumnsWithoutTrailingBlanks) {
  EXPECT_EQ(write_table(sample(), Format::kTable),
            "Layouts\n"
            "schedule     step s  MFU %\n"
            "1f1b           9.81   44.6\n"
            "interleaved   10.02\n"
            "MFU counts model FLOPs\n");
}

TEST(TableText, CountsCodePointsNotBytes) {
  Table table;
  table.columns = {text_column("name"), number_column("n")};
  table.rows = {{"größe", "1"}, {"plain", "2"}, {"a\nb", "3"}};
  EXPECT_EQ(write_table(table, Format::kTable),
            "name   n\n"
            "größe  1\n"
            "plain  2\n"
            "a b    3\n");
}

TEST(TableMarkdown, EscapesPipesAndMarksAlignment) {
  Table table = sample();
  table.rows[0][0] = "a|b\nc";
  EXPECT_EQ(write_table(table, Format::kMarkdown),
            "**Layouts**\n\n"
            "| schedule    | step s | MFU % |\n"
            "| ----------- | -----: | ----: |\n"
            "| a\\|b<br>c   |   9.81 |  44.6 |\n"
            "| interleaved |  10.02 |       |\n"
            "\nMFU counts model FLOPs\n");
}

TEST(TableLatex, IsATableThatLatexTakes) {
  Table table = sample();
  table.title += "\nof 10 ± 1 % & --more";
  table.rows[0][0] = "a_b{^2}\nc\\d";
  EXPECT_EQ(write_table(table, Format::kLatex),
            "\\begin{table}\n\\centering\n\\caption{Layouts. of 10 $\\pm$ 1 \\% \\& -{}-more}\n"
            "\\begin{tabular}{lrr}\n\\toprule\n"
            "schedule                                       & step s & MFU \\% \\\\\n\\midrule\n"
            "a\\_b\\{\\textasciicircum{}2\\} c\\textbackslash{}d &   9.81 &   44.6 \\\\\n"
            "interleaved                                    &  10.02 &        \\\\\n"
            "\\bottomrule\n\\end{tabular}\n\\par\\smallskip\\footnotesize MFU counts model FLOPs\n\\end{table}\n");
}

TEST(TableCsv, QuotesWhatRfc4180Demands) {
  Table table;
  table.columns = {text_column("a name", "na,me"), text_column("b")};
  table.rows = {{"say \"hi\"", "two\nlines"}, {"plain", " kept "}};
  EXPECT_EQ(write_table(table, Format::kCsv),
            "\"na,me\",b\n"
            "\"say \"\"hi\"\"\",\"two\nlines\"\n"
            "plain, kept \n");
}

TEST(TableJson, KeepsNumbersAsNumbersAndEmptyAsNull) {
  const nlohmann::json parsed = nlohmann::json::parse(write_table(sample(), Format::kJson));
  ASSERT_EQ(parsed.size(), 2U);
  EXPECT_EQ(parsed[0], (nlohmann::json{{"schedule", "1f1b"}, {"step_s", 9.81}, {"mfu_percent", 44.6}}));
  EXPECT_TRUE(parsed[1].at("mfu_percent").is_null());
}

TEST(TableJson, KeepsTheOrderOfColumnsAndEveryDigit) {
  Table table;
  table.columns = {number_column("z"), text_column("a")};
  table.rows = {{"1234567890.12345678901234", "\"\\\n\xFF"}};
  const std::string text = write_table(table, Format::kJson);
  EXPECT_EQ(text, "[\n  {\"z\": 1234567890.12345678901234, \"a\": \"\\\"\\\\\\n\xEF\xBF\xBD\"}\n]\n");
  EXPECT_TRUE(nlohmann::json::accept(text));
}

TEST(TableJson, AnEmptyTableIsAnEmptyArray) {
  EXPECT_EQ(write_table(Table{}, Format::kJson), "[]\n");
  EXPECT_EQ(write_table(Table{}, Format::kTable), "");
  EXPECT_EQ(write_table(Table{}, Format::kMarkdown), "");
  EXPECT_EQ(write_table(Table{}, Format::kLatex), "");
}

TEST(Table, RefusesWhatJsonCouldNotHold) {
  for (const std::string& cell :
       std::vector<std::string>{"1,024", "4.7%", "nan", "inf", "+1", "01", ".5", "5.", "1e", "0x10", " 1", "-"}) {
    Table table;
    table.columns = {number_column("n")};
    table.rows = {{cell}};
    EXPECT_THROW((void)write_table(table, Format::kTable), InternalError) << cell;
  }
  for (const std::string& cell :
       std::vector<std::string>{"0", "-0.5", "1e9", "12.25E-3", "123456789012345678901234567890"}) {
    Table table;
    table.columns = {number_column("n")};
    table.rows = {{cell}};
    EXPECT_TRUE(nlohmann::json::accept(write_table(table, Format::kJson))) << cell;
  }
}

TEST(Table, RefusesRaggedRowsAndRepeatedKeys) {
  Table ragged = sample();
  ragged.rows[1].pop_back();
  EXPECT_THROW((void)write_table(ragged, Format::kCsv), InternalError);
  Table repeated;
  repeated.columns = {text_column("peak GiB"), text_column("peak-gib")};
  EXPECT_THROW((void)write_table(repeated, Format::kJson), InternalError);
}

TEST(Format, ParsesItsNamesAndExplainsOthers) {
  EXPECT_EQ(parse_format("markdown"), Format::kMarkdown);
  EXPECT_EQ(parse_format("json"), Format::kJson);
  try {
    (void)parse_format("jsn");
    FAIL() << "jsn is not a format";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "--format");
    EXPECT_NE(error.diagnostic().problem.find("jsn"), std::string::npos);
    for (const std::string& choice : std::vector<std::string>{"table", "markdown", "latex", "csv", "json"}) {
      EXPECT_NE(error.diagnostic().help.find(choice), std::string::npos) << choice;
    }
  }
}

}  // namespace
}  // namespace flopcast

# Reads Google Test's XML reports and prints the failed and skipped cases with their messages, then the ten that took
# longest. The last line holds the counts for the caller: "counts PASSED FAILED SKIPPED".

function attribute(text, name,    start, rest) {
  start = index(text, " " name "=\"")
  if (start == 0) return ""
  rest = substr(text, start + length(name) + 3)
  return plain(substr(rest, 1, index(rest, "\"") - 1))
}

function plain(text) {
  gsub(/&lt;/, "<", text)
  gsub(/&gt;/, ">", text)
  gsub(/&quot;/, "\"", text)
  gsub(/&apos;/, "'", text)
  gsub(/&#x0?[dD];/, "", text)
  gsub(/&#x0?[aA];/, "\n      ", text)
  gsub(/&amp;/, "\\&", text)
  return text
}

function finish() {
  if (name == "") return
  if (failures > 0) { failed++; printf "  FAILED   %s\n%s", name, said }
  else if (was_skipped) { skipped++; printf "  SKIPPED  %s\n%s", name, said }
  else passed++
  name = ""
}

/<testcase / {
  finish()
  failures = 0
  was_skipped = 0
  said = ""
  # Cases that a filter or another shard left out.
  if (attribute($0, "status") == "run" || attribute($0, "result") == "completed" || attribute($0, "result") == "skipped") {
    name = attribute($0, "classname") "." attribute($0, "name")
    seconds[name] = attribute($0, "time") + 0
  }
}
/<failure / { failures++; said = said "      " attribute($0, "message") "\n" }
/<skipped / { was_skipped = 1; said = said "      " attribute($0, "message") "\n" }
END {
  finish()
  for (turn = 0; turn < 10; turn++) {
    longest = ""
    for (test in seconds) if (longest == "" || seconds[test] > seconds[longest]) longest = test
    if (longest == "" || seconds[longest] < 1) break
    printf "  %7.1f s  %s\n", seconds[longest], longest
    delete seconds[longest]
  }
  printf "counts %d %d %d\n", passed, failed, skipped
}

# Checks report.md against the tree in $INPUT_PATH with nothing but find and awk: every listed
# file has the lines it is said to have, the totals are the sums, and no file is left out.
# Exits with 1 and says why when a figure is wrong.
set -u
report=report.md

fail() {
  echo "$report is wrong: $*" >&2
  exit 1
}

figure() {
  sed -n "s/^- $1: \([0-9][0-9]*\)\$/\1/p" "$report" | head -n 1
}

test -f "$report" || fail "it does not exist"
rows=$(awk '/^## / { on = ($0 == "## Files") } on && /^[0-9]+ ./' "$report")
files=0
lines=0
while IFS= read -r row; do
  test -n "$row" || continue
  said=${row%% *}
  file=${row#* }
  test -f "$file" || fail "there is no file $file"
  # A last line without a line break counts, which wc -l would not do.
  counted=$(awk 'END { print NR }' < "$file") || fail "$file cannot be read"
  test "$counted" = "$said" || fail "$file has $counted lines, not $said"
  files=$((files + 1))
  lines=$((lines + counted))
done <<END
$rows
END

test "$(figure Files)" = "$files" || fail "it says $(figure Files) files and lists $files"
test "$(figure Lines)" = "$lines" || fail "it says $(figure Lines) lines, the files have $lines"
test "$(figure 'Parts not read')" = 0 || fail "parts of the tree were not read"
twice=$(printf '%s\n' "$rows" | cut -d ' ' -f 2- | sort | uniq -d | head -n 1)
test -z "$twice" || fail "$twice is listed twice"

# Whether the survey may have left a file out because an ignore rule says so.
ignored() {
  (cd "$INPUT_PATH" && git check-ignore -q -- "$1") 2> /dev/null
  case $? in
    0) return 0 ;;
    1) test -n "$plain_rules" ;;
    *) test -n "$plain_rules$git_rules" ;;
  esac
}

known=$(awk '/^## / { on = ($0 == "## Files" || $0 == "## Skipped") } on' "$report")
plain_rules=$(find "$INPUT_PATH" -name .ignore | head -n 1)
git_rules=$(find "$INPUT_PATH" -name .gitignore | head -n 1)
(cd "$INPUT_PATH" && find . -type f ! -path '*/.*') | sed 's,^\./,,' | while IFS= read -r file; do
  printf '%s\n' "$known" | grep -F -q -e " $file" -e "/$file" && continue
  test "$INPUT_PATH/$file" -ef "$report" && continue
  ignored "$file" || fail "$file is left out"
done || exit 1

echo "$report is right: $files files, $lines lines"

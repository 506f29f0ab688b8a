# Documents: links lead to files and headings, files and commands that are named exist, prose is not wider than asked, sentences name
# their subject first, and an entry of the changelog is one sentence.
#
#   awk -f check_documents.awk -v root=ROOT -v runs="demo test ..." -v commands="info lists ..." -v columns=140 -v tree=PATHS
#       -v options=OPTIONS FILE...
# PATHS is a file with a path of the tree on each line, OPTIONS one with an option of our commands and examples on each.
# Run with LC_ALL=C: bytes are counted, and those that continue a character are left out.

function complain(text,    name) {
  name = index(FILENAME, root "/") == 1 ? substr(FILENAME, length(root) + 2) : FILENAME
  printf "%s:%d: %s\n", name, FNR, text
  failed = 1
}

# The anchor of a heading, as GitHub makes it.
function anchor_of(heading) {
  heading = tolower(heading)
  gsub(/[^a-z0-9 _-]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

function exists(path) { return system("test -e '" path "'") == 0 }

function has_anchor(path, anchor,    line, found) {
  found = 0
  while ((getline line < path) > 0) {
    if (line ~ /^#+ / && anchor_of(substr(line, index(line, " ") + 1)) == anchor) found = 1
  }
  close(path)
  return found
}

function check_link(target,    path, anchor, at) {
  if (target ~ /^[a-z]+:/) return
  at = index(target, "#")
  path = at ? substr(target, 1, at - 1) : target
  anchor = at ? substr(target, at + 1) : ""
  path = path == "" ? FILENAME : folder path
  if (!exists(path)) complain("a link to nothing: " target)
  else if (anchor != "" && !has_anchor(path, anchor)) complain("a link to no heading: " target)
}

# Every word that follows `name ` in code is one of `known`.
function check_commands(text, name, known,    start, word) {
  while ((start = index(text, name " ")) > 0) {
    if (start > 1 && substr(text, start - 1, 1) ~ /[A-Za-z0-9_\/.-]/) {
      text = substr(text, start + length(name))
      continue
    }
    text = substr(text, start + length(name) + 1)
    word = text
    sub(/[^a-z_-].*/, "", word)
    if (word ~ /^[a-z]/ && index(" " known " ", " " word " ") == 0) complain("no command: " name " " word)
  }
}

# Options of our commands, behind ./run, mezzo or an example.
function check_options(text,    option) {
  if (text !~ /^(\.\/run |mezzo |build\/dev\/|(fashion_mnist|dcgan|imagenet|word_language_model|ssd512|numerics|generate) )/) return
  sub(/ -- .*/, "", text)
  gsub(/'[^']*'|"[^"]*"/, "", text)
  while (match(text, /(^| )--[a-z][a-z0-9_-]*/)) {
    option = substr(text, RSTART, RLENGTH)
    sub(/^ /, "", option)
    if (!(option in known_options)) complain("no option: " option)
    text = substr(text, RSTART + RLENGTH)
  }
}

# A file or folder of the tree by its path, where `*` stands for anything and NAME for a name; or the name of a file, which is then in
# the folder that the line named last.
function check_path(name, is_bare_known,    path, pattern) {
  if (name ~ /^mezzo\/[a-z_0-9]+\.h$/) name = "include/" name
  if (name ~ /^(src|include|tests|tools|bench|cmake|docs|examples|python|packaging)\/[A-Za-z0-9_.\/*-]*$/) {
    inside = name
    sub(/[^\/]*$/, "", inside)
    if (name in paths || name in folders) return
    pattern = name
    gsub(/\./, "\\.", pattern)
    gsub(/\*|NAME/, ".*", pattern)
    if (pattern ~ /\.\*/) for (path in paths) if (path ~ ("^" pattern "$")) return
    complain("no such file: " name)
  } else if (is_bare_known && name ~ /^[a-z][a-z0-9_]*\.(cpp|h|cu|cuh|inc|inl|awk|cmake)$/) {
    if (inside == "" ? !(name in names) : !((inside name) in paths)) complain("no file of this name: " inside name)
  }
}

BEGIN {
  while ((getline option < options) > 0) known_options[option] = 1
  while ((getline path < tree) > 0) {
    paths[path] = 1
    name = path
    sub(/.*\//, "", name)
    names[name] = 1
    while (sub(/\/[^\/]*$/, "", path)) {
      folders[path] = 1
      folders[path "/"] = 1
    }
  }
}

FNR == 1 {
  in_code = 0
  folder = FILENAME
  sub(/[^\/]*$/, "", folder)
  in_tree = FILENAME ~ /\/(ARCHITECTURE|CONTRIBUTING|wrong)\.md$/
  is_changelog = FILENAME ~ /\/(CHANGELOG|wrong)\.md$/
}

/^ *(```|~~~)/ {
  in_code = !in_code
  next
}

in_code {
  check_commands($0, "./run", runs)
  check_options($0)
  if ($0 ~ /^(\$ )?mezzo /) check_commands($0, "mezzo", commands)
  next
}

{
  wide = $0
  gsub(/[\200-\277]/, "", wide)
  if (length(wide) > columns && wide !~ /^ *(\||#|<|!\[|\[!)/ && wide ~ / [^ ]* /) complain("more than " columns " columns")

  if ($0 ~ /(^ *([-*] |[0-9]+\. |\| )?|[.:;!?|] )(What|Whose|Who|Of)[ ,]/) complain("a sentence that does not begin with its subject")
  if (is_changelog && $0 ~ /^(- |  [^ ])/) {
    if ($0 ~ /[.!?] +[A-Z`]/ || ($0 ~ /^  / && ended)) complain("more than one sentence")
    ended = $0 ~ /[.!?]$/
  }

  rest = $0
  while (match(rest, /\]\([^() ]+\)/)) {
    check_link(substr(rest, RSTART + 2, RLENGTH - 3))
    rest = substr(rest, RSTART + RLENGTH)
  }
  inside = ""
  count = split($0, parts, "`")
  for (i = 2; i <= count; i += 2) {
    check_commands(parts[i], "./run", runs)
    if (parts[i] ~ /^mezzo /) check_commands(parts[i], "mezzo", commands)
    check_options(parts[i])
    check_path(parts[i], in_tree)
  }
}

END { exit failed }

# A man page (roff) from what a command's --help prints.
#
#   mezzo convert --help | awk -v name=mezzo-convert -v version=0.1.0 -f manual.awk

function escaped(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  gsub(/^[.']/, "\\\\\\&&", text)
  return text
}

# Words of an option stand at column 3. Their description stands at column 31, on the next line where they are longer.
function show_entry(line, is_described_below) {
  entry = substr(line, 3)
  if (!is_described_below && substr(entry, 28, 1) == " ") {
    words = substr(entry, 1, 28)
    text = substr(entry, 29)
    sub(/ +$/, "", words)
  } else {
    words = entry
    text = ""
  }
  gsub(/,-/, ", -", words)
  printf ".TP\n.B %s\n", escaped(words)
  if (text != "") print escaped(text)
}

held != "" { show_entry(held, $0 ~ /^                              /); held = "" }
NR == 1 {
  printf ".TH %s 1 \"\" \"mezzo %s\" \"Mezzo\"\n.SH NAME\n%s \\- %s\n", toupper(escaped(name)), version, escaped(name), escaped(tolower(substr($0, 1, 1)) substr($0, 2))
  next
}
/^Usage: / {
  printf ".SH SYNOPSIS\n.B %s\n", escaped(substr($0, 8))
  if (usage != "") printf ".br\n.B %s\n", escaped(usage)
  next
}
NR == 2 && /^  / { usage = substr($0, 3); next }
/^$/ { next }
/^[A-Z][A-Za-z ]*:$/ { printf ".SH %s\n", toupper(substr($0, 1, length($0) - 1)); is_example = /^Example/; next }
is_example { printf ".nf\n%s\n.fi\n", escaped(substr($0, 3)); next }
/^  [^ ]/ { held = $0; next }
{ sub(/^ +/, ""); print escaped($0) }
END {
  if (held != "") show_entry(held, 0)
  if (name == "mezzo") printf ".SH SEE ALSO\nEach command has a page of its own, such as\n.BR mezzo\\-convert (1).\n"
  else printf ".SH SEE ALSO\n.BR mezzo (1)\n"
}

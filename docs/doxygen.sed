# A header's first comment describes the file; a comment behind a declaration describes what stands before it; what the
# compiler writes (copies, inherited constructors) and what a base class of LibTorch documents (overrides) needs no words.
1,/^#pragma once/ {
  1s|^// |/// \\file\n/// |
  s|^//$|///|
  s|^// |/// |
}
s|\([;,{}]\)\( *\)// |\1\2///< |
s#^ .*) *\(const\)\{0,1\} *\(noexcept\)\{0,1\} *= *\(default\|delete\);.*##
s|^ *using \([A-Za-z0-9_:]*\)::[A-Za-z0-9_]*;$||
s|^ *\([A-Za-z]*\)(const \1&);||
s|^ *\([A-Za-z]*\)& operator=(const \1&);||
s|^ .*) *\(const\)\{0,1\} *\(noexcept\)\{0,1\} *override;||

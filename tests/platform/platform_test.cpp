#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>

#include "mezzo/error.h"
#include "platform/files.h"
#include "platform/libraries.h"
#include "platform/libtorch.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "platform/temporaries.h"

namespace mezzo::platform {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path =
      fs::path(testing::TempDir()) / ("mezzo_platform_test_" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(WriteAtomically, ReplacesTheTarget) {
  Folder folder;
  write_atomically(folder.path / "a", [](std::ostream& out) { out << "one"; });
  write_atomically(folder.path / "a", [](std::ostream& out) { out << "two"; });
  EXPECT_EQ(content(folder.path / "a"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(WriteAtomically, LeavesTheTargetWhenTheWriterThrows) {
  Folder folder;
  write_atomically(folder.path / "a", [](std::ostream& out) { out << "one"; });
  EXPECT_THROW(write_atomically(folder.path / "a",
                                [](std::ostream&) { throw std::runtime_error("half way"); }),
               std::runtime_error);
  EXPECT_EQ(content(folder.path / "a"), "one");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(WriteAtomically, NamesATargetThatCannotBeWritten) {
  try {
    write_atomically("/nonexistent/folder/file", [](std::ostream&) {});
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("/nonexistent/folder/file"));
  }
}

TEST(BehindLinks, IsWhatTheyLeadToThereOrNot) {
  Folder folder;
  const fs::path file = folder.path / "deep" / "file";
  fs::create_directory(folder.path / "deep");
  fs::create_symlink("file", folder.path / "deep" / "first");
  fs::create_symlink("deep/first", folder.path / "second");
  fs::create_symlink(folder.path / "second", folder.path / "third");
  EXPECT_EQ(behind_links(folder.path / "third"), file);
  std::ofstream(file) << "text";
  EXPECT_EQ(behind_links(folder.path / "third"), file);
  EXPECT_EQ(behind_links(file), file);
  EXPECT_EQ(behind_links("/nonexistent/folder/file"), "/nonexistent/folder/file");
}

TEST(BehindLinks, LinksInACircleAreAnError) {
  Folder folder;
  fs::create_symlink("b", folder.path / "a");
  fs::create_symlink("a", folder.path / "b");
  EXPECT_THROW(behind_links(folder.path / "a"), Error);
}

TEST(Temporaries, GoWithTheirObjects) {
  Folder folder;
  {
    const Temporary file(folder.path / "file");
    std::ofstream(file.path()) << "text";
    std::error_code failure;
    const auto made = Temporary::new_folder(folder.path / "made", failure);
    ASSERT_TRUE(made);
    fs::create_directories(made->path() / "deeper");
    EXPECT_EQ(Temporary::new_folder(folder.path / "made", failure), nullptr) << "is another's";
    EXPECT_FALSE(failure);
  }
  EXPECT_TRUE(fs::is_empty(folder.path));
}

TEST(TemporariesDeathTest, GoWhenTheProcessIsStopped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Folder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto work = [&] {
      remove_temporaries_when_stopped();
      std::error_code failure;
      const auto made = Temporary::new_folder(folder.path / "made", failure);
      std::ofstream(made->path() / "part") << "text";
      kill(getpid(), signal);
      for (;;) pause();
    };
    EXPECT_EXIT(work(), testing::KilledBySignal(signal), "");
    EXPECT_TRUE(fs::is_empty(folder.path)) << signal;
  }
}

TEST(TemporariesDeathTest, AnIgnoredSignalStaysIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto work = [] {
    signal(SIGHUP, SIG_IGN);
    remove_temporaries_when_stopped();
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGTERM);
    for (;;) pause();
  };
  EXPECT_EXIT(work(), testing::KilledBySignal(SIGTERM), "");
}

TEST(Memory, ThePeakIsAtLeastTheResidentSize) {
  EXPECT_GT(resident_bytes(), 0);
  EXPECT_GE(peak_resident_bytes() + (1 << 20), resident_bytes());
}

TEST(Libraries, AMissingOneSaysWhy) {
  std::string why;
  EXPECT_EQ(open_library("libno_such_thing.so", &why), nullptr);
  EXPECT_THAT(why, testing::HasSubstr("libno_such_thing.so"));
}

TEST(Processor, TellsItsNameAndWhatItCanDo) {
  EXPECT_FALSE(processor_name().empty());
#if defined(__x86_64__)
  EXPECT_THAT(processor_flags(), testing::Contains("sse2"));
#endif
}

TEST(Connections, ABrokenOneIsAnErrorOfTheWrite) {
  platform::survive_broken_connections();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

TEST(Terminal, ThatIsNoneHasTheUsualWidth) {
  EXPECT_FALSE(is_terminal(-1));
  EXPECT_EQ(terminal_columns(-1), 80);
}

TEST(WorkApart, GivesWhatItFound) {
  std::string text(300000, 'x');  // more than a pipe holds
  int here = 1;
  const std::optional<ApartEnd> apart = do_apart([&] {
    here = 2;
    return text;
  });
  ASSERT_TRUE(apart.has_value());
  EXPECT_EQ(apart->result, text);
  EXPECT_FALSE(apart->end.failed());
  EXPECT_EQ(here, 1);
}

TEST(WorkApart, CrashesThereAlone) {
  const std::optional<ApartEnd> apart = do_apart([]() -> std::string {
    ::raise(SIGSEGV);
    return "never";
  });
  ASSERT_TRUE(apart.has_value());
  EXPECT_EQ(apart->end.signal, SIGSEGV);
  EXPECT_EQ(apart->result, "");
}

TEST(WorkApart, AnExceptionIsAFailure) {
  const std::optional<ApartEnd> apart = do_apart([]() -> std::string { throw Error("no"); });
  ASSERT_TRUE(apart.has_value());
  EXPECT_TRUE(apart->end.failed());
}

// A library in a Python environment whose torch is of another version: the wheel of the evaluator.
TEST(LibTorch, OfAnotherSeriesBesideALibraryIsRefusedByItsVersion) {
  const std::optional<std::string> named = environment_variable("LIBTORCH");
  unsetenv("LIBTORCH");
  Folder folder;
  fs::create_directories(folder.path / "torch" / "lib");
  fs::create_directories(folder.path / "mezzo");
  std::ofstream library(folder.path / "torch" / "lib" / "libtorch_cpu.so");
  std::ofstream(folder.path / "torch" / "version.py") << "__version__ = '2.99.0+cpu'\n";
  std::string why;
  EXPECT_EQ(open_with_libtorch((folder.path / "mezzo" / "library.so").string(), &why), nullptr);
  if (named) setenv("LIBTORCH", named->c_str(), 1);
  EXPECT_THAT(why, testing::HasSubstr("/torch', is LibTorch 2.99.0, not 2."));
}

}  // namespace
}  // namespace mezzo::platform

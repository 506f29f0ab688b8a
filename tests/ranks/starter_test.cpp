#include "ranks/starter.h"

#include <gmock/gmock.h>

#include <map>

#include "mezzo/error.h"

namespace mezzo::ranks {
namespace {

using testing::HasSubstr;

Variables from(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

struct StarterCase {
  const char* name;
  std::map<std::string, std::string> variables;
  const char* starter;
  int rank, size, local_rank;
  int local_size;  // 0: not said, which is not that all are on one machine
};

const std::vector<StarterCase> kStarters{
    {"Torchrun",
     {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}},
     "torchrun",
     3,
     4,
     1,
     2},
    {"TorchrunComesFirst",
     {{"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "8"}},
     "torchrun",
     0,
     2,
     0,
     0},
    {"OpenMpi",
     {{"OMPI_COMM_WORLD_RANK", "5"},
      {"OMPI_COMM_WORLD_SIZE", "8"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
     "Open MPI",
     5,
     8,
     1,
     4},
    {"Pmi", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI", 1, 2, 1, 0},
    {"SlurmWithAMaster",
     {{"SLURM_PROCID", "2"},
      {"SLURM_NTASKS", "3"},
      {"SLURM_LOCALID", "0"},
      {"MASTER_ADDR", "node1"}},
     "Slurm",
     2,
     3,
     0,
     0},
    {"SlurmThroughPmix",
     {{"PMIX_RANK", "2"},
      {"SLURM_PROCID", "2"},
      {"SLURM_NTASKS", "3"},
      {"SLURM_LOCALID", "1"},
      {"MASTER_ADDR", "node1"}},
     "Slurm",
     2,
     3,
     1,
     0},
    {"OpenMpiWithAStraySize",
     {{"WORLD_SIZE", "16"}, {"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}},
     "Open MPI",
     5,
     8,
     5,
     0},
};

class Starters : public testing::TestWithParam<StarterCase> {};

TEST_P(Starters, AreUnderstood) {
  const Starter s = read_starter(from(GetParam().variables));
  EXPECT_EQ(s.name, GetParam().starter);
  EXPECT_EQ(s.rank, GetParam().rank);
  EXPECT_EQ(s.world_size, GetParam().size);
  EXPECT_EQ(s.local_rank, GetParam().local_rank);
  EXPECT_EQ(s.local_world_size, GetParam().local_size);
}

INSTANTIATE_TEST_SUITE_P(Starter, Starters, testing::ValuesIn(kStarters),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Starter, ReadsTheAgentsStoreAndRestart) {
  const Starter s = read_starter(from({{"RANK", "0"},
                                       {"WORLD_SIZE", "2"},
                                       {"MASTER_ADDR", "localhost"},
                                       {"MASTER_PORT", "1234"},
                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                       {"TORCHELASTIC_RUN_ID", "job7"},
                                       {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_TRUE(s.agent_store);
  EXPECT_EQ(s.master_address, "localhost");
  EXPECT_EQ(s.master_port, 1234);
  EXPECT_EQ(s.run_id, "job7");
  EXPECT_EQ(s.restart_count, 2);
}

TEST(Starter, SlurmsBatchShellIsNoStarter) {
  EXPECT_THROW(read_starter(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})), ConfigError);
}

struct BadCase {
  const char* name;
  std::map<std::string, std::string> variables;
  const char* says;
};

const std::vector<BadCase> kBad{
    {"Nothing", {}, "mezzo launch"},
    {"NoSize", {{"RANK", "0"}}, "RANK is set but WORLD_SIZE is not"},
    {"NoRank", {{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set but RANK is not"},
    {"NoSizeBesideMpi",
     {{"RANK", "0"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
     "RANK is set but WORLD_SIZE is not"},
    {"NoPmixSize", {{"PMIX_RANK", "0"}}, "PMIX_SIZE"},
    {"EmptyRank", {{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK is ''"},
    {"PortTooLarge",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}},
     "MASTER_PORT is 70000, expected 1 to 65535"},
    {"NegativeLocalRank", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "-1"}}, "-1"},
    {"NoNumber", {{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "'one'"},
    {"TrailingText", {{"RANK", "1x"}, {"WORLD_SIZE", "2"}}, "'1x'"},
    {"RankTooLarge", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "0 to 1"},
    {"NegativeRank", {{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "-1"},
    {"EmptyWorld", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "at least 1"},
};

class BadStarters : public testing::TestWithParam<BadCase> {};

TEST_P(BadStarters, AreRefused) {
  try {
    read_starter(from(GetParam().variables));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(Starter, BadStarters, testing::ValuesIn(kBad),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(InitMethod, UnderstandsTcpFileAndEnvironment) {
  const MeetingPoint tcp = parse_init_method("tcp://node1:29500?rank=1&world_size=2");
  EXPECT_EQ(tcp.kind, MeetingPoint::Kind::kTcp);
  EXPECT_EQ(tcp.host, "node1");
  EXPECT_EQ(tcp.port, 29500);
  EXPECT_EQ(tcp.rank, 1);
  EXPECT_EQ(tcp.world_size, 2);
  EXPECT_EQ(parse_init_method("tcp://[::1]:80").host, "::1");
  EXPECT_EQ(parse_init_method("tcp://127.0.0.1:80/").port, 80);
  EXPECT_EQ(parse_init_method("file:///tmp/a b").path, "/tmp/a b");
  EXPECT_EQ(parse_init_method("env://").kind, MeetingPoint::Kind::kEnvironment);
}

TEST(InitMethod, RefusesWhatItDoesNotKnow) {
  for (const char* bad :
       {"", "udp://a:1", "tcp://", "tcp://host", "tcp://:1", "tcp://host:0", "tcp://host:70000",
        "tcp://host:x", "file://", "env://?rang=1", "env://?rank=x"}) {
    EXPECT_THROW(parse_init_method(bad), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace mezzo::ranks

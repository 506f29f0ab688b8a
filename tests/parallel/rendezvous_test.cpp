// How ranks meet at an address or in a file of the program's own.
#include <gmock/gmock.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "mezzo/parallel.h"
#include "parallel/several.h"
#include "platform/network.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::expect_all_pass;
using testing_ranks::Rank;
using namespace std::chrono_literals;

int number(const char* variable) {
  return std::stoi(std::getenv(variable));
}

InitOptions meeting() {
  InitOptions options;
  options.init_method = std::getenv("MEETING");
  options.timeout = 15s;
  return options;
}

void expect_together(int expected_rank, int expected_local_rank) {
  EXPECT_EQ(rank(), expected_rank);
  EXPECT_EQ(world_size(), 2);
  EXPECT_EQ(local_rank(), expected_local_rank);
  const at::Tensor sum = torch::full({1}, rank() + 1.0);
  world().all_reduce(sum);
  EXPECT_EQ(sum.item<float>(), 3);
}

const Rank kStarter("met as the starter says", [] {
  const int own = number("RANK");
  setenv("LOCAL_RANK", std::to_string(own + 4).c_str(), 1);
  init_process_group(meeting());
  expect_together(own, own + 4);
});

const Rank kSlurm("met as Slurm says", [] {
  const int own = number("RANK");
  setenv("SLURM_PROCID", std::to_string(own).c_str(), 1);
  setenv("SLURM_NTASKS", "2", 1);
  setenv("SLURM_LOCALID", std::to_string(own + 4).c_str(), 1);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"}) unsetenv(name);
  init_process_group(meeting());
  expect_together(own, own + 4);
});

const Rank kExplicit("met as was given", [] {
  InitOptions options = meeting();
  options.rank = 1 - number("RANK");
  options.world_size = 2;
  setenv("LOCAL_RANK", "4", 1);
  init_process_group(options);
  expect_together(*options.rank, *options.rank);
});

std::string address_at(const std::string& host) {
  int port = 0;
  platform::close_descriptor(platform::listen_at(host, port));
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return "tcp://" + (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

void expect_meeting_at(const std::string& host, const std::string& work) {
  expect_all_pass(work, {.environment = {{"MEETING", address_at(host)}}});
}

TEST(Rendezvous, AnAddressNeedsNoRankUnderAStarter) {
  expect_meeting_at("127.0.0.1", "met as the starter says");
  expect_meeting_at("127.0.0.1", "met as Slurm says");
}

TEST(Rendezvous, AFileNeedsNoRankUnderAStarter) {
  const std::string path = testing::TempDir() + "mezzo_rendezvous_" + std::to_string(getpid());
  expect_all_pass("met as the starter says", {.environment = {{"MEETING", "file://" + path}}});
  std::filesystem::remove(path);
}

TEST(Rendezvous, WhatIsGivenComesBeforeTheStarter) {
  expect_meeting_at("127.0.0.1", "met as was given");
}

TEST(Rendezvous, EveryNumberOfTheLoopbackIsAMeetingPoint) {
  expect_meeting_at("127.0.1.1", "met as the starter says");
  expect_meeting_at("127.0.0.2", "met as the starter says");
}

TEST(Rendezvous, TheLoopbackOfIPv6IsAMeetingPoint) {
  try {
    address_at("::1");
  } catch (const Error& e) {
    GTEST_SKIP() << "no IPv6 loopback here: " << e.what();
  }
  expect_meeting_at("::1", "met as the starter says");
}

}  // namespace
}  // namespace mezzo::parallel

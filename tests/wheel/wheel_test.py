"""The installed wheel: wheel_test.py ENVIRONMENT [MODELS], run by that environment's Python. `./run test --slow wheel` does.

MODELS: the folder pytorch-converted of libonnx-testdata, if it lies elsewhere.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import mezzo

ENVIRONMENT = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(ENVIRONMENT, "bin", "mezzo")
MODELS = sys.argv.pop(1) if len(sys.argv) > 1 else "/usr/share/libonnx-testdata/data/pytorch-converted"
MODEL = os.path.join(MODELS, "test_Conv2d_groups/model.onnx")
HAS_ONNX = importlib.util.find_spec("onnx") is not None
TORCH = importlib.util.find_spec("torch")
HAS_ONNXRUNTIME = importlib.util.find_spec("onnxruntime") is not None


class Wheel(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = os.path.join(self.folder.name, "net16.onnx")

    def mezzo(self, *words):
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout

    def test_program_and_package_have_one_version(self):
        self.assertEqual(self.mezzo("--version").splitlines()[0], "mezzo " + mezzo.__version__)

    def test_help_takes_at_most_30_ms(self):
        def seconds():
            begin = time.perf_counter()
            self.mezzo("--help")
            return time.perf_counter() - begin

        fastest = min(seconds() for _ in range(20))
        print(f"mezzo --help takes {1000 * fastest:.1f} ms")
        self.assertLess(fastest, 0.030)

    def test_a_file_is_converted(self):
        result = mezzo.convert_model(MODEL, self.out, cast_optional_params=True)
        self.assertGreater(result.report["low_nodes"], 0)
        self.assertEqual(result.plan["target_dtype"], "float16")
        self.assertIsNone(result.model)
        self.assertIn("tensor(float16)", mezzo.inspect(self.out)["value_types"])

    def test_the_program_converts_to_the_same(self):
        mezzo.convert_model(MODEL, self.out, cast_optional_params=True)
        other = self.out + ".onnx"
        self.mezzo("convert", MODEL, "-o", other, "--quiet")
        with open(self.out, "rb") as one, open(other, "rb") as two:
            self.assertEqual(one.read(), two.read())

    def test_a_plan_is_a_dict_that_json_keeps(self):
        plan = json.loads(json.dumps(mezzo.plan_model(MODEL, target_dtype="bfloat16")))
        report = mezzo.apply_plan(MODEL, plan, self.out, verify="none").report
        self.assertEqual(report["target_dtype"], "bfloat16")

    def test_names_that_are_excluded_stay_float32(self):
        for options in ({"fp32_ops": ["+Conv"]}, {"conditional_fp32_ops": [("Conv", "group", ["2"])]}, {"excluded_names": ["*"]}):
            with self.subTest(options):
                self.assertEqual(mezzo.convert_model(MODEL, self.out, **options).report["low_nodes"], 0)

    def test_wrong_options_are_refused_by_name(self):
        with self.assertRaisesRegex(mezzo.ConfigError, "float61"):
            mezzo.convert_model(MODEL, self.out, target_dtype="float61")
        with self.assertRaisesRegex(mezzo.ConfigError, "'tolerence'; did you mean 'tolerance'"):
            mezzo.plan_model(MODEL, tolerence=1e-3)
        with self.assertRaisesRegex(mezzo.ConfigError, 'Options::headroom is "much"; expected a number'):
            mezzo.plan_model(MODEL, headroom="much")
        with self.assertRaisesRegex(mezzo.Error, "no-such-file"):
            mezzo.inspect("no-such-file.onnx")

    def test_lists_are_those_of_the_converter(self):
        self.assertIn("Conv", mezzo.list_lp16_ops())
        self.assertIn("Exp", mezzo.list_fp32_ops())
        self.assertIn("Relu", mezzo.list_lp16_fp32_ops("bfloat16"))
        self.assertIn("Add", mezzo.list_widest_type_cast())
        for operator, attribute, values in mezzo.list_conditional_fp32_ops():
            self.assertTrue(operator and attribute and values)

    def test_progress_is_told_and_what_it_throws_ends_the_conversion(self):
        told = []
        mezzo.convert_model(MODEL, self.out, progress=lambda what, share: told.append((what, share)))
        self.assertTrue(told)
        self.assertTrue(all(0 <= share <= 1 for _, share in told))
        os.remove(self.out)

        def stop(what, share):
            raise KeyError(what)

        with self.assertRaises(KeyError):
            mezzo.convert_model(MODEL, self.out, progress=stop)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_ctrl_c_ends_the_conversion(self):
        def interrupt(what, share):
            os.kill(os.getpid(), signal.SIGINT)

        # Programs that a shell starts in the background are born deaf to it.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with self.assertRaises(KeyboardInterrupt):
            mezzo.convert_model(MODEL, self.out, progress=interrupt)
        self.assertEqual(os.listdir(self.folder.name), [])

    @unittest.skipIf(HAS_ONNX, "onnx is there")
    def test_without_onnx_a_model_that_is_no_file_is_refused(self):
        with self.assertRaisesRegex(mezzo.ConfigError, "needs the package onnx"):
            mezzo.convert_model(MODEL)

    @unittest.skipUnless(HAS_ONNX, "no onnx here")
    def test_a_model_proto_is_taken_and_given(self):
        import onnx

        before = onnx.load(MODEL)
        bytes_before = before.SerializeToString()
        result = mezzo.convert_model(before, cast_optional_params=True)
        self.assertEqual(before.SerializeToString(), bytes_before)
        onnx.checker.check_model(result.model)
        types = {weight.data_type for weight in result.model.graph.initializer}
        self.assertIn(onnx.TensorProto.FLOAT16, types)
        self.assertEqual(mezzo.apply_plan(before, result.plan).model, result.model)

    @unittest.skipUnless(HAS_ONNXRUNTIME, "no onnxruntime here")
    def test_onnx_runtime_of_this_environment_judges(self):
        self.assertIn("ONNX Runtime", mezzo.convert_model(MODEL, self.out).report["verified"])
        text = self.mezzo("convert", MODEL, "-o", self.out, "--json")
        self.assertIn("ONNX Runtime", json.loads(text)["verified"])

    @unittest.skipIf(TORCH or HAS_ONNXRUNTIME, "a judge is there")
    def test_without_a_judge_a_comparison_says_what_is_missing(self):
        with self.assertRaisesRegex(mezzo.UnsupportedError, "evaluator: libmezzo_convert_torch.so.*ONNX Runtime.s libonnxruntime.so was not found"):
            mezzo.convert_model(MODEL, self.out, verify="compare")

    @unittest.skipUnless(TORCH, "no LibTorch here")
    def test_the_evaluator_of_this_environment_judges(self):
        self.assertIn("the built-in evaluator", mezzo.convert_model(MODEL, self.out, verify="compare").report["verified"])
        text = self.mezzo("convert", MODEL, "-o", self.out, "--verify", "compare", "--json")
        self.assertIn("the built-in evaluator", json.loads(text)["verified"])

    @unittest.skipUnless(TORCH, "no LibTorch here")
    def test_a_torch_that_does_not_fit_is_refused_by_version(self):
        place = os.path.join(self.folder.name, "site-packages")
        os.makedirs(os.path.join(place, "torch", "lib"))
        shutil.copytree(os.path.dirname(mezzo.__file__), os.path.join(place, "mezzo"))
        open(os.path.join(place, "torch", "lib", "libtorch_cpu.so"), "w").close()
        with open(os.path.join(place, "torch", "version.py"), "w") as file:
            file.write("__version__ = '2.99.0+cpu'\n")
        code = f"import mezzo; mezzo.convert_model({MODEL!r}, {self.out!r}, verify='compare')"
        answer = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": place}, capture_output=True, text=True)
        self.assertRegex(answer.stderr, "the torch beside it, '.*/torch', is LibTorch 2.99.0, not 2")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Tags the wheel: any Python 3, since cffi loads the library at run time, on the platform that .ci/wheel has checked."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['SPILLWAY_WHEEL_PLATFORM']}"

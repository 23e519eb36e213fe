"""nmt-distill for `torchrun -m nmt.cli.distill`, as the pages of version 0.3.0 had it; it is now in nmt.synthetic."""

import runpy

if __name__ == "__main__":
    runpy.run_module("nmt.synthetic.distill", run_name="__main__")

"""Time one framework: python -m benchmarks.trainings FRAMEWORK SECONDS"""

import json
import sys

from benchmarks.trainings.measure import measure

print(json.dumps(measure(sys.argv[1], float(sys.argv[2]))))

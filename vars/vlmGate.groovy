// The gate as a step of a shared library of Jenkins, `vlmGate(model: 'tiny', suites: 'suites/')`, or the file that
// `vlmrobust init --ci jenkins` copies and `load` reads. Every exit code but 0 (GO) and those of `warn` fails the build.
def call(Map given = [:]) {
    Map inputs = [
        package: '', // what is installed: a wheel in the repository, git+https://HOST/REPOSITORY@TAG, or a checkout
        model: '', // the model, as after --vlm. Default: what pytest's ini file says, as for the next three
        data: '', // the dataset, as after --vlm-dataset
        policy: '', // the policy, as after --vlm-thresholds
        suites: '', // files and folders of suites, separated by spaces
        options: '', // more options of pytest, separated by spaces; none may have a space inside
        report: 'report', // folder of the report, new or of an earlier gate, which becomes the artifact
        warn: [10], // exit codes that make the build unstable only: 10 (INCONCLUSIVE), 11 (INCOMPLETE), both, or none
        torch: 'cpu', // build of torch: cpu, without 6 GB of CUDA, or auto on an agent with a GPU
    ]
    for (name in given.keySet()) {
        if (!inputs.containsKey(name)) {
            error("vlmGate has no input ${name}. Expected one of ${inputs.keySet().join(', ')}")
        }
    }
    inputs.putAll(given)
    List variables = [
        "VLM_PACKAGE=${inputs['package']}",
        "UV_TORCH_BACKEND=${inputs.torch}",
        "VLM_MODEL=${inputs.model}",
        "VLM_DATA=${inputs.data}",
        "VLM_POLICY=${inputs.policy}",
        "VLM_SUITES=${inputs.suites}",
        "VLM_OPTIONS=${inputs.options}",
        "VLM_REPORT=${inputs.report}",
    ]
    int code = 11
    withEnv(variables) {
        sh '''
            : "${VLM_PACKAGE:?is empty. Write into the Jenkinsfile, as package, where pytest-vlmrobust comes from: no package index has it}"
            python -m venv .venv
            .venv/bin/pip install "uv>=0.7.14"
            .venv/bin/uv pip install --no-cache --python .venv "$VLM_PACKAGE"
            # the image has no libGL, and this build of OpenCV needs none
            .venv/bin/pip install --force-reinstall --no-deps opencv-python-headless
        '''
        try {
            // answers stay in .vlmrobust in the workspace: a model that did not change is not asked again
            code = sh(returnStatus: true, script: '''
                code=0
                if [ -n "$(ls -A "$VLM_REPORT" 2> /dev/null)" ]; then # of an earlier job: it must not count or be published as this one's
                  if ! grep -qs '"report": true' "$VLM_REPORT/manifest.json"; then
                    echo "report: $VLM_REPORT holds files, and no report of an earlier gate. Name a new or empty folder: all of it is replaced" >&2
                    exit 4
                  fi
                  rm -rf "$VLM_REPORT"
                fi
                set -f
                set -- $VLM_SUITES $VLM_OPTIONS --vlm-junit-plain
                if [ -n "$VLM_POLICY" ]; then set -- "--vlm-thresholds=$VLM_POLICY" "$@"; fi
                if [ -n "$VLM_DATA" ]; then set -- "--vlm-dataset=$VLM_DATA" "$@"; fi
                if [ -n "$VLM_MODEL" ]; then set -- "--vlm=$VLM_MODEL" "$@"; fi
                .venv/bin/pytest "$@" "--vlm-report=$VLM_REPORT" "--junitxml=$VLM_REPORT/pytest.xml" || code=$?
                # C code can end pytest with 0 in the middle: 0 counts only of a run that wrote its report and whose files say GO
                if [ "$code" = 0 ] && [ ! -s "$VLM_REPORT/results.json" ]; then echo "pytest ended before it wrote its report"; code=11; fi
                if [ "$code" = 0 ]; then .venv/bin/vlmrobust report latest || code=$?; fi
                exit "$code"
            ''')
        } finally {
            junit testResults: "${inputs.report}/pytest.xml", skipMarkingBuildUnstable: true, allowEmptyResults: true
            archiveArtifacts artifacts: "${inputs.report}/**", allowEmptyArchive: true
        }
    }
    if (code in [10, 11] && code in inputs.warn) {
        unstable("no GO: ${code == 10 ? 'INCONCLUSIVE' : 'INCOMPLETE'}")
    } else if (code != 0) {
        error("no GO: exit code ${code}")
    }
    return code // release on 0 alone: an unstable build is not GO
}
return this

"""What is wrong with a command is said in one line, and nothing is written. The rooms test what else can be wrong."""

import shlex

import pytest

WRONG = [
    ("rollout guideline --env NSCLC -n 0", "-n/--episodes"),
    ("rollout guideline --env NSCLC --seed -1", "--seed"),
    ("rollout guideline --env NSCLC --json .", "--json"),
    ("rollout guideline --env NSCLC --cohort nowhere.parquet", "nowhere.parquet"),
    ("rollout guidelin --env NSCLC", "(did you mean 'guideline'?)"),
    ("evaluate clinician --env Nowhere", "there is no environment or card 'Nowhere'"),
    ("evaluate clinician --env NSCLC --compare nobody", "nobody"),
    ("evaluate guideline --env NSCLC --workers moon", "'moon'"),
    ("evaluate guideline --env NSCLC --address x:1", "--address needs --workers ray"),
    ("dataset guideline --env NSCLC --address x:1", "--address needs --workers ray"),
    ("dataset guideline --env NSCLC --name 'a b'", "is not the name of a dataset"),
    ("dataset guideline", "--env"),
    ("yardstick mine.toml", "shipped cards only"),
    ("show nslc", "(did you mean 'NSCLC'?)"),
    ("show nowhere.toml", "nowhere.toml"),
    ("play NSCLC --quiet", "--agent"),
    ("play NSCLC --agent osimertinb", "(did you mean 'osimertinib'?)"),
    ("play NSCLC --plot journey.pdf", "does not end in .png"),
    ("play NSCLC-Dose", "cannot be played by hand"),
    ("cohort nsclc", "--out"),
    ("cohort nsclc --patients 0 --out x.parquet", "-n/--patients"),
    ("cohort nsclc --where 'height > 2' --out x.parquet", "'height'"),
    ("cohort nsclc --do age --out x.parquet", "NAME=VALUE"),
    ("cohort nsclc --do age=old --out x.parquet", "'old'"),
    ("train NSCLC", "--out"),
    ("train NSCLC --out policy.zip", "does not end in .onnx"),
    ("train mo-NSCLC --out x.onnx", "vector of rewards"),
    ("train NSCLC --imitate clinican --out x.onnx", "(did you mean 'clinician'?)"),
    ("export model.zip --env NSCLC", "--out"),
    ("record guideline --env NSCLC", "--out"),
    ("record guideline --env NSCLC-Dose-v0 --out x.json", "only if an action is a regimen"),
    ("verify", "EPISODES"),
    (f"verify {__file__}", "is not a file of episodes"),
    ("trial nsclc", "--arm"),
    ("trial nsclc --arm docetaxel --scan-weeks x", "'x'"),
    ("trial nsclc --arm docetaxl", "(did you mean 'docetaxel'?)"),
    ("calibrate nsclc --address x:1", "--address needs --workers ray"),
    ("calibrate nsclc --check --address x:1", "--address needs --workers ray"),
    ("calibrate nsclc --json x.json", "--json needs --check or --crossval"),
    ("calibrate nsclc --check --out x.toml", "--out cannot be combined with --check or --crossval"),
    ("calibrate nsclc --out x.txt", "does not end in .toml"),
    ("design nsclc --arm osimertinib", "at least two --arm"),
    ("design nsclc --arm a --arm b --endpoint oss", "(did you mean 'os'?)"),
    ("design nsclc --arm a --arm b --sensitivity respons", "(did you mean 'response'?)"),
    ("design nsclc --arm docetaxl --arm docetaxel", "(did you mean 'docetaxel'?)"),
]


@pytest.mark.parametrize(("line", "named"), WRONG)
def test_errors_are_one_line(refused, line, named):
    refused(named, *shlex.split(line))

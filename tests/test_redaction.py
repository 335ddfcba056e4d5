from __future__ import annotations

import shlex

import pytest

from nncftools.intake import HIDDEN, Redaction

LONGEST = 128 * 1024 - 1
"""The longest word that the kernel allows in a command line."""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("login --password hunter2 -v", "login --password *** -v"),
        ("login --password=hunter2 -v", "login --password=*** -v"),
        ("login '--password=correct horse; battery & staple'", "login --password=***"),
        ("login --Hub-Token a --api_key b --hf.auth-key=c", "login --Hub-Token *** --api_key *** --hf.auth-key=***"),
        ("login --credentials a --passphrase b --secret c", "login --credentials *** --passphrase *** --secret ***"),
        ("env HF_TOKEN=a WANDB_API_KEY=b PGPASSWORD=c run", "env HF_TOKEN=*** WANDB_API_KEY=*** PGPASSWORD=*** run"),
        ("env 'PASSWORD=a b' MYSQL_PWD=abc KEY=abc run", "env PASSWORD=*** MYSQL_PWD=*** KEY=*** run"),
        ("cmake -DSIGNING_KEY=abc .", "cmake -DSIGNING_KEY=*** ."),
        ("train hub_token=abc +logger.api_key=abc", "train hub_token=*** +logger.api_key=***"),
        ("lm_eval --model_args pretrained=m,token=abc", "lm_eval --model_args pretrained=m,token=***"),
        ("git clone https://me:p@ss:word@host/repo", "git clone https://***@host/repo"),
        ("pip install git+https://abcdef@github.com/a/b", "pip install git+https://***@github.com/a/b"),
        ("run redis://:abc@host/0 postgresql://u:p@h/db", "run redis://***@host/0 postgresql://***@h/db"),
        ("curl 'https://host/?v=1&token=abc&x=2'", "curl 'https://host/?v=1&token=***&x=2'"),
        ("curl -H 'Authorization: Bearer abcdefgh'", "curl -H 'Authorization: ***'"),
        ("curl -H 'X-Api-Key: abc' -H 'PRIVATE-TOKEN: abc'", "curl -H 'X-Api-Key: ***' -H 'PRIVATE-TOKEN: ***'"),
        ("run hf_AbCdEfGhIjKl0123 sk-proj-AbC123dEf456", "run *** ***"),
        ("run --login=ghp_0123456789abcdef AKIA0123456789ABCDEF", "run --login=*** ***"),
        ("run nvapi-0123456789abcdef eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "run *** ***"),
    ],
)  # fmt: skip
def test_hidden(command: str, expected: str) -> None:
    """What looks like a secret is hidden, and nothing else."""
    assert Redaction().words(shlex.split(command)) == shlex.split(expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("HF_TOKEN=abc python train.py --lr 1", "HF_TOKEN=*** python train.py --lr 1"),
        ("login --password 'a b' && train", "login --password *** && train"),
        ("login --password='it'\\''s' | tee log", "login --password=*** | tee log"),
        ('login --password="a \\" b"; train', "login --password=***; train"),
        ("login --password a\\ b; train", "login --password ***; train"),
        ("python -c \"login(token = 'abc')\" x", 'python -c "login(token = *** x'),
        ('run \'{"api_key": "abc"}\'', 'run \'{"api_key": ***'),
    ],
)
def test_in_a_shells_line(line: str, expected: str) -> None:
    """In a shell command line, only the secrets are hidden, in any quoting."""
    assert Redaction().words(["sh", "-c", line]) == ["sh", "-c", expected]


@pytest.mark.parametrize(
    "command",
    [
        "generate --max-new-tokens 20 --max_new_tokens=20 --max-token 20 --num-tokens 5 --min_new_tokens 1",
        "generate --pad-token '<pad>' --eos-token '</s>' --eos-token-id 2 --bos_token=1 --unk-token x --mask_token=m",
        "generate --tokenizer meta/llama --tokenizer-mode auto --image-token-id 5 --no-token-type-ids --tokens 3",
        "train pad_token=0 model.eos_token=2 tokenizer=x PAD_TOKEN=0 max_tokens=7 --keys a --key-value-heads 8",
        "train --group-key layer --sort_key=name --passes 3 --pass-through yes --keyword x --secretary y",
        "train --model hf_hub_model --cache hf_cache --repo sk-learn --task-type x disk-0123456 token password",
        "scp user@host:/a ssh://git@host/a https://host:8080/a@b https://host/a:b@c",
        "optimum-cli export openvino --weight-format int4 --token-file /run/secret --password-stdin out",
        "docker run registry/secret:latest a.token:check",
    ],
)
def test_not_hidden(command: str) -> None:
    """Settings of tokenizers and models, and words that only contain such a name, stay as typed."""
    words = shlex.split(command)
    assert Redaction().words(words) == words


def test_option_without_a_value() -> None:
    """A following option is not a value."""
    words = ["login", "--use-auth-token", "--force"]
    assert Redaction().words(words) == words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('token = "abc"', "token = ***"),
        ("self.hf_token = 'abc' \"d\"  # e", "self.hf_token = ***  # e"),
        ("api_key: str = 'abc'", "api_key: str = ***"),
        ("def load(token: Optional[str] = 'abc', model='m'):", "def load(token: Optional[str] = ***, model='m'):"),
        ('login(user="me", password="abc", host="h")', 'login(user="me", password=***, host="h")'),
        ("login(password = ('abc'), x='y')", "login(password = (***), x='y')"),
        ('{"name": "x", "token": "abc", "size": "y"}', '{"name": "x", "token": ***, "size": "y"}'),
        ('os.environ["HF_TOKEN"] = "abc"', 'os.environ["HF_TOKEN"] = ***'),
        ('os.environ.setdefault("HF_TOKEN", "abc")', 'os.environ.setdefault("HF_TOKEN", ***)'),
        ('run(["--password", "abc", "x"])', 'run(["--password", ***, "x"])'),
        ('secret = f\'abc{x}\' + rb"d\\"e"', "secret = *** + ***"),
        ("token = decrypt(key, 'abc', b'd')", "token = decrypt(key, ***, ***)"),
        ('secret = """abc', "secret = ***"),
        ("if (password := 'abc') == \"it's\":", "if (password := ***) == ***:"),
        ("SECRET_KEY='abc'; KEY = 'd'; x = 'y'", "SECRET_KEY=***; KEY = ***; x = 'y'"),
        ('system("login --password abc && HF_TOKEN=d x")', 'system("login --password *** && HF_TOKEN=*** x")'),
        ('get("https://me:abc@host/?token=d", x)', 'get("https://***@host/?token=***", x)'),
        ('headers = {"Authorization": "Bearer abcdefgh"}', 'headers = {"Authorization": ***'),
        ('headers["Authorization"] = "Basic abc"', 'headers["Authorization"] = ***'),
        ("accessToken = 'abc'; pwd = 'd'; encryption_key = 'e'", "accessToken = ***; pwd = ***; encryption_key = ***"),
        ('tokenizer = of("gpt2"); pad_token = "[PAD]"', 'tokenizer = of("gpt2"); pad_token = "[PAD]"'),
        ("login('hf_AbCdEfGhIjKl0123')  # ghp_0123456789abcdef", "login('***')  # ***"),
    ],
)
def test_in_code(line: str, expected: str) -> None:
    """In a line of Python, strings are hidden that the name of a secret gets, and the secrets in other strings."""
    assert Redaction().code(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "tokenizer = AutoTokenizer.from_pretrained('x'); pad_token = '<pad>'; eos_token=\"</s>\"",
        "token = tokenizer.decode(x, skip_special_tokens=True)",
        "model = load(name, token=token, revision='main')",
        "def load(token: str, model: str = 'm') -> None:",
        "tokens = batch['input_ids']; key = 'layer'; passes = 3",
        "print('token:', 'abc'); x = 'a' if y else \"it's\"",
        "rows = table['token']['ids'], 'x'",
    ],
)
def test_not_hidden_in_code(line: str) -> None:
    """Other strings of a line stay, and so does what has no string."""
    assert Redaction().code(line) == line


def test_own_rules_in_code() -> None:
    """The user's expressions hide more of a line, and without redaction everything stays."""
    assert Redaction([r"/home/\w+"]).code("token = 'a'; open('/home/anna/x')") == "token = ***; open('***/x')"
    assert Redaction(None).code("token = 'a'") == "token = 'a'"


class TestOwn:
    def test_all_of_a_match(self) -> None:
        """Matches of the user's expression are hidden in addition."""
        hidden = Redaction([r"/home/\w+"]).words(["cat", "/home/anna/x", "--token=a"])
        assert hidden == ["cat", "***/x", "--token=***"]

    def test_its_group(self) -> None:
        """With a group in the expression, only the group is hidden."""
        assert Redaction(["id-([0-9]+)"]).words(["x", "--user", "id-4711"]) == ["x", "--user", "id-***"]

    def test_nothing(self) -> None:
        """An empty match hides nothing."""
        assert Redaction(["x*"]).words(["abc"]) == ["abc"]

    def test_off(self) -> None:
        """Without redaction, everything stays."""
        words = ["login", "--password", "hunter2", "hf_AbCdEfGhIjKl0123"]
        assert Redaction(None).words(words) == words


PIECES = (
    "a",
    "-",
    "_",
    ".",
    ".-",
    "A_",
    "a.",
    "key",
    "token ",
    "?-",
    "sk-",
    "hf_",
    "-eyJ",
    "://",
    "://:",
    "'",
    '"',
    "\\",
)


@pytest.mark.long
@pytest.mark.parametrize("piece", PIECES)
def test_longest_word(piece: str) -> None:
    """The longest word that the kernel allows takes linear time, for any content."""
    text = (piece * LONGEST)[:LONGEST]
    assert Redaction().words(["x", text, "--password", "hunter2"])[-1] == HIDDEN
    assert Redaction().code(text)

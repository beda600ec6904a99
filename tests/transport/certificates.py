"""Certificates of an authority that nobody else knows, made with openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Authority(NamedTuple):
    folder: Path

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str) -> tuple[Path, Path]:
        """The certificate and the key of a host or a client; good for localhost."""
        key, request, cert = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        names = self.folder / f"{name}.names"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        signed_by = ["-CA", str(self.ca_file), "-CAkey", str(self.folder / "ca.key")]
        of = ["-in", str(request), "-out", str(cert), "-extfile", str(names)]
        openssl("x509", "-req", *signed_by, "-CAcreateserial", "-days", "30", *of)
        return cert, key


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def authority(folder: Path, name: str = "test authority") -> Authority:
    folder.mkdir(parents=True, exist_ok=True)
    made = Authority(folder)
    key = folder / "ca.key"
    to = ["-keyout", str(key), "-out", str(made.ca_file)]
    openssl("req", "-x509", *NEW_KEY, "-days", "30", "-subj", f"/CN={name}", *to)
    return made


def encrypted(key: Path, password: str) -> Path:
    """The same key, encrypted."""
    to = key.with_suffix(".encrypted")
    openssl("pkcs8", "-topk8", "-in", str(key), "-out", str(to), "-passout", f"pass:{password}")
    return to


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)

#!/usr/bin/env python3
"""Durable regions in a machine that reboots and loses its power: reboot.py BUILD FOLDER

A virtual machine (qemu, a Debian kernel, ext4 on a disk with a volatile cache) runs BUILD's spillwayd with an
encrypted disk tier.

- Reboots: in order, and at once, when nothing more is written back. Each boot must find all durable regions.
- Power: all writes of the disk and its flushes are recorded in order. Disks are made that have everything up to the
  last flush before a random moment, and of later writes some: whole, in part, or not at all. The next boot must find
  every region that had been reported durable by that moment, and no wrong byte. A drop is only certain when a later
  region of the same client is durable.

A write that ended while a flush was under way counts as flushed; tests/fault/power_cut.c is stricter there.

Downloads the kernel into FOLDER, once. Exit code 77: qemu, busybox, or a kernel is missing. $SW_POWER_CUTS: how many
moments, 6. $SW_POWER_SEED: of the first one.
"""
import glob
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DISK_MIB, MARKS_MIB = 194, 192  # the file system ends where the client's marks begin (client.c)
SECTOR = 512
FLUSH, FUA, DISCARD = 1, 2, 4  # flags of the log, whose format is that of the kernel's dm-log-writes
# In the order in which they are loaded. qemu's NVMe disk needs none, but does not pass on FUA, which ext4 relies on.
MODULES = "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def find_kernel(folder):
    """Debian's kernel for virtual machines, which has ext4 built in."""
    if not glob.glob(f"{folder}/kernel/boot/vmlinuz-*"):
        package = r'set -e; cd "$1"; name=$(apt-cache depends linux-image-cloud-amd64 | sed -n "s/ *Depends: //p")'
        package += r'; apt-get -q download "$name"; dpkg-deb -x "$name"_*.deb kernel'
        done = subprocess.run(["bash", "-c", package, "bash", folder], capture_output=True, text=True)
        if done.returncode:
            skip(f"no kernel: {done.stderr.strip()[-200:]}")
    return f"{folder}/kernel"


def make_initramfs(build, kernel, run):
    root = f"{run}/root"
    os.makedirs(f"{root}/bin")
    os.makedirs(f"{root}/modules")
    for i, module in enumerate(MODULES):
        for path in glob.glob(f"{kernel}/lib/modules/*/kernel/drivers/*/{module}.ko"):
            shutil.copy(path, f"{root}/modules/{i}.ko")
    shutil.copy(shutil.which("busybox"), f"{root}/bin/busybox")
    shutil.copy(f"{HERE}/init", f"{root}/init")
    for name, path in (("spillwayd", "daemon/spillwayd"), ("client", "tests/e2e/e2e_reboot_client")):
        subprocess.run(["strip", "-o", f"{root}/{name}", f"{build}/{path}"], check=True)
        libraries = subprocess.run(["ldd", f"{build}/{path}"], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", libraries):
            os.makedirs(os.path.dirname(root + library), exist_ok=True)
            shutil.copy(library, root + library)
    with open(os.open(f"{root}/key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as key:
        key.write("00112233445566778899aabbccddeeff" * 2 + "\n")
    subprocess.run(f"cd {root} && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1 >{run}/initramfs", shell=True,
                   check=True)


class Machine:
    def __init__(self, kernel, run):
        self.kernel, self.run = glob.glob(f"{kernel}/boot/vmlinuz-*")[0], run
        self.empty = f"{run}/empty"  # one for all: the file system's identity is part of its checksums
        with open(self.empty, "wb") as disk:
            disk.truncate(DISK_MIB << 20)
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", self.empty, f"{MARKS_MIB}M"], check=True)

    def new_disk(self, name):
        return shutil.copy(self.empty, f"{self.run}/{name}")

    def boot(self, mode, disk, log=None):
        """Returns what the machine said until it went off."""
        node = f"driver=file,filename={disk},cache.direct=off"
        if log:
            open(log, "wb").close()
            node = f"driver=blklogwrites,file.driver=file,file.filename={disk},log.driver=file,log.filename={log}"
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "512", "-display", "none",
                   "-nodefaults", "-serial", "stdio", "-kernel", self.kernel, "-initrd", f"{self.run}/initramfs",
                   "-append", f"console=ttyS0 quiet panic=-1 no_timer_check mode={mode}",
                   "-blockdev", f"{node},node-name=disk", "-device", "virtio-blk-pci,drive=disk"]
        done = subprocess.run(["timeout", "600", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace").replace("\r", "")
        if done.returncode or "\nend\n" not in text or "failed:" in text:
            print(text)
            sys.exit(f"reboot.py: {mode}: the machine failed ({done.returncode})")
        return text


def numbers(word, text):
    return {int(number) for number in re.findall(rf"^{word} (\d+)$", text, re.M)}


def check(what, said, found):
    """said: by the client before; found: by the next boot."""
    kept, dropping, dropped = (numbers(word, said) for word in ("kept", "dropping", "dropped"))
    gone = {i for i in dropped if any(j > i and j // 300 == i // 300 for j in kept)}
    missing, back = kept - dropping - found, gone & found
    print(f"{what}: {len(kept - dropping)} durable regions, {len(gone)} dropped, {len(found)} found whole")
    if missing or back:
        sys.exit(f"reboot.py: {what}: missing {sorted(missing)}, back {sorted(back)}")


def reboots(machine):
    text = machine.boot("reboot", machine.new_disk("rebooted"))
    boots = re.split(r"^boot \d\n", text, flags=re.M)[1:]
    assert len(boots) == 3, text
    before = ""
    for what, boot in zip(("new", "rebooted in order", "rebooted at once"), boots):
        check(what, before, numbers("found", boot))
        before += boot
    assert numbers("found", boots[2]), text


def read_log(path):
    """Returns the writes and flushes in order: sector, flags, data."""
    with open(path, "rb") as log:
        data = log.read()
    magic, _, n, size = struct.unpack_from("<QQQI", data)
    assert magic == 0x6A736677736872 and size == SECTOR
    entries, at = [], SECTOR
    for _ in range(n):
        sector, n_sectors, flags, _ = struct.unpack_from("<QQQQ", data, at)
        at += SECTOR
        length = 0 if flags & DISCARD else n_sectors * SECTOR
        entries.append((sector, flags, data[at:at + length]))
        at += length
    return entries


def write_some(disk, entry, chance):
    """Writes all, some or no sectors of an entry that was not flushed."""
    sector, flags, data = entry
    what = "all" if flags & FUA else chance.choice(("all", "some", "none"))
    for i in range(0, len(data), SECTOR):
        if what == "all" or (what == "some" and chance.random() < 0.5):
            disk.seek(sector * SECTOR + i)
            disk.write(data[i:i + SECTOR])


def cut(entries, moment, disk_path, chance):
    """Writes a disk as a power cut before entry `moment` may leave it. Returns how many writes were not flushed."""
    flushed = max((i for i in range(moment) if entries[i][1] & FLUSH), default=0)
    with open(disk_path, "r+b") as disk:
        for i, entry in enumerate(entries[:moment]):
            if i > flushed:
                write_some(disk, entry, chance)
            elif entry[2]:
                disk.seek(entry[0] * SECTOR)
                disk.write(entry[2])
    return moment - flushed - 1


def power(machine):
    n_cuts, seed = int(os.environ.get("SW_POWER_CUTS", "6")), int(os.environ.get("SW_POWER_SEED", "1"))
    disk, log = machine.new_disk("written"), f"{machine.run}/log"
    machine.boot("cut", disk, log)
    entries = read_log(log)
    marks = {}
    for i, (sector, _, data) in enumerate(entries):
        if sector * SECTOR >= MARKS_MIB << 20:
            marks[i] = data[:data.index(0)].decode()
    print(f"power: {len(entries)} writes and flushes, {sum(flags & FLUSH for _, flags, _ in entries)} flushes")
    for number in range(seed, seed + n_cuts):
        chance = random.Random(number)
        moment = chance.randrange(min(marks), len(entries))
        disk = machine.new_disk("cut")
        n_lost = cut(entries, moment, disk, chance)
        said = "".join(text for i, text in marks.items() if i < moment)
        check(f"cut {number}, at {moment}, {n_lost} writes not flushed", said,
              numbers("found", machine.boot("found", disk)))


def main():
    build, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    for tool in ("qemu-system-x86_64", "busybox", "mke2fs", "cpio"):
        if not shutil.which(tool):
            skip(f"no {tool}")
    os.makedirs(folder, exist_ok=True)
    kernel = find_kernel(folder)
    with tempfile.TemporaryDirectory(dir=folder) as run:
        make_initramfs(build, kernel, run)
        machine = Machine(kernel, run)
        reboots(machine)
        power(machine)


main()

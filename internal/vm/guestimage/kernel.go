// SPDX-License-Identifier: Apache-2.0

package guestimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

const kernelName = "vmlinuz"

// wanted are packages of kernels for virtual machines, the preferred one first: Debian's, and Ubuntu's.
func wanted() []string {
	return []string{"linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64", "linux-image-virtual"}
}

// kernel gives the directory with the kernel and its modules.
func (c Config) kernel(ctx context.Context) (string, error) {
	pkg, version, err := newest(ctx)
	if err != nil && os.Geteuid() == 0 { // a fresh machine has no lists
		if _, e := output(ctx, "", "apt-get", "update", "-qq"); e == nil {
			pkg, version, err = newest(ctx)
		}
	}
	if err != nil {
		if old, ok := c.have(); ok {
			return old, nil
		}
		return "", model.Faultf(model.CodeInvalidEnv, "run apt-get update; or "+wayOut, "kernel: %w", err)
	}
	dir := filepath.Join(c.Cache, "guest-"+pkg+"-"+version)
	if _, err := os.Stat(filepath.Join(dir, kernelName)); err == nil {
		return dir, nil
	}
	c.Say("getting %s %s into %s (once)", pkg, version, dir)
	if err := c.fetch(ctx, pkg, dir); err != nil {
		if old, ok := c.have(); ok {
			return old, nil
		}
		return "", model.Faultf(model.CodeInvalidEnv, wayOut, "kernel: %s: %w", pkg, err)
	}
	return dir, nil
}

// have is the newest kernel that is here: it will do where a newer one cannot be had.
func (c Config) have() (dir string, ok bool) {
	old, _ := filepath.Glob(filepath.Join(c.Cache, "guest-*", kernelName))
	if len(old) == 0 {
		return "", false
	}
	return filepath.Dir(slices.Max(old)), true
}

// newest asks apt which kernel there is.
func newest(ctx context.Context) (pkg, version string, err error) {
	for _, meta := range wanted() {
		out, e := output(ctx, "", "apt-cache", "depends", meta)
		err = errors.Join(err, e)
		for line := range strings.Lines(out) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok &&
				strings.HasPrefix(name, "linux-image-") && pkg == "" {
				pkg = name
			}
		}
		if pkg != "" {
			break
		}
	}
	if pkg == "" {
		return "", "", errors.Join(errors.New("apt knows none of "+strings.Join(wanted(), ", ")), err)
	}
	out, err := output(ctx, "", "apt-cache", "show", "--no-all-versions", pkg)
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(line, "Version: "); ok {
			return pkg, strings.TrimSpace(v), nil
		}
	}
	return "", "", errors.Join(errors.New("apt knows no version of "+pkg), err)
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(problem.String()))
	}
	return string(out), nil
}

// fetch brings a package and takes the kernel and the drivers out of it. The directory is whole when it is there.
func (c Config) fetch(ctx context.Context, pkg, dir string) (err error) {
	if err := os.MkdirAll(c.Cache, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(c.Cache, "guest.new-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if _, err := output(ctx, tmp, "apt-get", "download", "-qq", pkg); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(debs) != 1 {
		return fmt.Errorf("apt-get download: %d files", len(debs))
	}
	into := filepath.Join(tmp, "files")
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	if err := unpack(ctx, debs[0], into); err != nil {
		return err
	}
	if err = os.Rename(into, dir); err != nil {
		if _, there := os.Stat(filepath.Join(dir, kernelName)); there == nil {
			return nil // somebody else was quicker
		}
	}
	return err
}

// unpack takes what is wanted out of a package.
func unpack(ctx context.Context, deb, into string) (err error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = pick(ctx, tar.NewReader(out), into)
	if err == nil {
		_, err = io.Copy(io.Discard, out)
	}
	_ = out.Close()
	if e := cmd.Wait(); err == nil && e != nil {
		err = fmt.Errorf("dpkg-deb: %w", e)
	}
	return err
}

// pick writes the kernel and all modules that a driver may need.
func pick(ctx context.Context, r *tar.Reader, into string) error {
	all := map[string]module{}
	found := false
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Base(h.Name)
		switch {
		case h.Typeflag != tar.TypeReg:
		case strings.HasPrefix(name, kernelName+"-"):
			found = true
			if err := save(filepath.Join(into, kernelName), r); err != nil {
				return err
			}
		case near(h.Name):
			m, err := takeModule(ctx, name, r)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[strings.ReplaceAll(strings.TrimSuffix(m.name, suffix), "-", "_")] = m
		}
	}
	if !found {
		return errors.New("there is no kernel in it")
	}
	for _, m := range inOrder(all) {
		if err := os.WriteFile(filepath.Join(into, m.name), m.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// near tells whether a file may be a module that is wanted: looking into all of them takes minutes.
func near(name string) bool {
	for _, dir := range []string{
		"/kernel/drivers/virtio/", "/kernel/drivers/net/virtio_net.", "/kernel/net/core/",
		"/kernel/drivers/net/net_failover.",
		"/kernel/drivers/net/ethernet/intel/e1000", "/kernel/drivers/net/ethernet/realtek/8139", "/kernel/drivers/net/mii.",
		"/kernel/drivers/acpi/button.", "/kernel/drivers/input/evdev.",
	} {
		if strings.Contains(name, dir) && strings.Contains(name, suffix) {
			return true
		}
	}
	return false
}

func save(name string, r io.Reader) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// takeModule reads a module, which may be compressed.
func takeModule(ctx context.Context, name string, r io.Reader) (module, error) {
	if strings.HasSuffix(name, ".xz") {
		cmd := exec.CommandContext(ctx, "xz", "-dc")
		cmd.Stdin = r
		out, err := cmd.Output()
		if err != nil {
			return module{}, fmt.Errorf("xz: %w", err)
		}
		deps, err := depends(out)
		return module{name: strings.TrimSuffix(name, ".xz"), data: out, depends: deps}, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return module{}, err
	}
	deps, err := depends(b)
	return module{name: name, data: b, depends: deps}, err
}

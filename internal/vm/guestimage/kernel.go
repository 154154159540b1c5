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

// kernelPackages are kernel packages for VMs, the preferred one first: Debian's, and Ubuntu's.
func kernelPackages() []string {
	return []string{"linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64", "linux-image-virtual"}
}

// kernel returns the directory with the kernel and its modules.
func (c Config) kernel(ctx context.Context) (string, error) {
	pkg, version, err := newest(ctx)
	if err != nil && os.Geteuid() == 0 { // a fresh host has no package lists
		if _, e := output(ctx, "", "apt-get", "update", "-qq"); e == nil {
			pkg, version, err = newest(ctx)
		}
	}
	if err != nil {
		if old, ok := c.cached(); ok {
			return old, nil
		}
		return "", model.Errorf(model.CodeInvalidEnv, "run apt-get update; or "+explicitHint, "kernel: %w", err)
	}
	dir := filepath.Join(c.Cache, "guest-"+pkg+"-"+version)
	if _, err := os.Stat(filepath.Join(dir, kernelName)); err == nil {
		return dir, nil
	}
	c.Progress("getting %s %s into %s (once)", pkg, version, dir)
	if err := c.fetch(ctx, pkg, dir); err != nil {
		if old, ok := c.cached(); ok {
			return old, nil
		}
		return "", model.Errorf(model.CodeInvalidEnv, explicitHint, "kernel: %s: %w", pkg, err)
	}
	return dir, nil
}

// cached returns the newest kernel in the cache, for use if the download of a newer one fails.
func (c Config) cached() (dir string, ok bool) {
	old, _ := filepath.Glob(filepath.Join(c.Cache, "guest-*", kernelName))
	if len(old) == 0 {
		return "", false
	}
	return filepath.Dir(slices.Max(old)), true
}

// newest returns the kernel package that apt has.
func newest(ctx context.Context) (pkg, version string, err error) {
	for _, meta := range kernelPackages() {
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
		return "", "", errors.Join(errors.New("apt has none of "+strings.Join(kernelPackages(), ", ")), err)
	}
	out, err := output(ctx, "", "apt-cache", "show", "--no-all-versions", pkg)
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(line, "Version: "); ok {
			return pkg, strings.TrimSpace(v), nil
		}
	}
	return "", "", errors.Join(errors.New("apt has no version of "+pkg), err)
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

// fetch downloads a package and extracts the kernel and the drivers. It creates the directory atomically.
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
			return nil // another process was faster
		}
	}
	return err
}

// unpack extracts the kernel and the drivers of a package.
func unpack(ctx context.Context, deb, into string) (err error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = extract(ctx, tar.NewReader(out), into)
	if err == nil {
		_, err = io.Copy(io.Discard, out)
	}
	_ = out.Close()
	if e := cmd.Wait(); err == nil && e != nil {
		err = fmt.Errorf("dpkg-deb: %w", e)
	}
	return err
}

// extract writes the kernel and all modules that a driver may need.
func extract(ctx context.Context, r *tar.Reader, into string) error {
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
		case isCandidate(h.Name):
			m, err := readModuleFrom(ctx, name, r)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[strings.ReplaceAll(strings.TrimSuffix(m.name, suffix), "-", "_")] = m
		}
	}
	if !found {
		return errors.New("it contains no kernel")
	}
	for _, m := range loadOrder(all) {
		if err := os.WriteFile(filepath.Join(into, m.name), m.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// isCandidate reports whether a file may be a needed module: reading all of them takes minutes.
func isCandidate(name string) bool {
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

// readModuleFrom reads a module, which may be compressed.
func readModuleFrom(ctx context.Context, name string, r io.Reader) (module, error) {
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

// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// fewest is how many elements the path of a state directory must have: a directory such as /run or /var/lib is not
// removed as a whole, whatever the configuration says.
const fewest = 3

// findFiles lists the agent's files, and the directories that are empty without them. For running pods the state
// directory stays, and the addresses of host-local.
func (n *Node) findFiles(found *Found) error {
	s := n.cfg.Settings
	var paths []string
	add := func(path string) {
		if _, err := os.Lstat(path); path != "" && err == nil {
			paths = append(paths, path)
		}
	}
	for _, path := range []string{s.Socket, wire.PingSocket(s.Socket), adminapi.Path(s.Socket), s.Socket + ".lock"} {
		add(path)
	}
	add(s.Network.MTUFile)
	state := []string{wire.QueueDir(s.Socket), journal, s.StateDir}
	switch s.Network.Mode {
	case config.ModeFlannel:
		add(s.Flannel.SubnetFile)
		path, network, err := install.OwnFlannel(n.installation())
		if err != nil {
			return err
		}
		if path != "" {
			state = append([]string{path, filepath.Join(s.AddressDir, network), plugin.FlannelDataDir}, state...)
		}
	case config.ModeCluster, config.ModeNone:
		add(s.Network.WireguardKeyFile)
		state = append([]string{filepath.Join(s.AddressDir, s.Network.Name)}, state...)
	default:
		add(s.Network.WireguardKeyFile)
	}
	for _, dir := range state {
		_, err := os.Lstat(dir)
		switch {
		case err != nil:
		case len(found.Pods) > 0:
			found.Kept = append(found.Kept, dir+": it describes pods of the network")
		case strings.Count(filepath.Clean(dir), "/") < fewest:
			found.Kept = append(found.Kept, dir+": not a directory of weft alone; remove weft's files in it by hand")
		default:
			paths = append(paths, dir)
		}
	}
	var what []string
	for _, p := range paths {
		what = append(what, "file "+p)
	}
	found.add(func(context.Context) error { return removePaths(paths) }, what...)
	n.findEmpty(found, paths)
	return nil
}

// journal is where plugins without an agent record their attachments.
const journal = "/run/weft/journal"

// findEmpty lists the directories that the agent's pod or the agent have made, if nothing is in them without weft.
func (n *Node) findEmpty(found *Found, gone []string) {
	s := n.cfg.Settings
	var dirs []string
	for _, dir := range []string{
		wire.Dir(s.Socket), filepath.Dir(s.Network.WireguardKeyFile), s.AddressDir, "/var/lib/calico",
		"/run/k8s.cni.cncf.io/devinfo/dp", "/run/k8s.cni.cncf.io/devinfo/cni", "/run/k8s.cni.cncf.io/devinfo", "/run/k8s.cni.cncf.io",
	} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			path := filepath.Join(dir, e.Name())
			return !slices.Contains(gone, path) && !slices.Contains(dirs, path)
		}) {
			dirs = append(dirs, dir)
		}
	}
	var what []string
	for _, dir := range dirs {
		what = append(what, "empty directory "+dir)
	}
	found.add(func(context.Context) error { return removeEmpty(dirs) }, what...)
}

func removePaths(paths []string) error {
	var errs []error
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, model.Errorf(model.CodeIO, "remove it by hand", "file %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// removeEmpty removes directories that are still empty.
func removeEmpty(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		err := unix.Rmdir(dir)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("directory %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

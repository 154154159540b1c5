// SPDX-License-Identifier: Apache-2.0

// Package inuse reads which addresses the interfaces in this host's network namespaces have.
package inuse

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/netns"
)

// namedNamespaces is where runtimes keep the namespaces of their pods.
const namedNamespaces = "/run/netns"

// Read reads the addresses of interfaces in namespaces, those that are named included, and says which are gone.
func Read(paths map[string]bool) (seen []audit.ObservedAddress, gone []string, err error) {
	entries, err := os.ReadDir(namedNamespaces)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		paths[filepath.Join(namedNamespaces, e.Name())] = true
	}
	for path := range paths {
		if path == "" {
			continue
		}
		have, err := addressesIn(path)
		switch {
		case errors.Is(err, netns.ErrGone), errors.Is(err, fs.ErrNotExist):
			gone = append(gone, path)
		case err != nil:
			return nil, nil, err
		}
		seen = append(seen, have...)
	}
	return seen, gone, nil
}

// addressesIn are the addresses of the interfaces in a namespace.
func addressesIn(path string) ([]audit.ObservedAddress, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	var seen []audit.ObservedAddress
	err = ns.Do(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			addrs, err := link.Addrs()
			if err != nil {
				return err
			}
			for _, addr := range addrs {
				if p, err := netip.ParsePrefix(addr.String()); err == nil {
					seen = append(seen, audit.ObservedAddress{Netns: path, IfName: link.Name, Addr: p.Addr().Unmap()})
				}
			}
		}
		return nil
	})
	return seen, err
}

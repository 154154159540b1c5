// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/netns"
)

// Recover takes out of a pod what a killed call of a machine left unfinished there; what is finished stays, and is
// told. It is for who starts after that call, when nobody may come to take it up.
func (c Config) Recover(ctx context.Context, ns *netns.NS, pod, key string) (Record, error) {
	return c.leaveSome(ctx, ns, pod, key, func(n Network) bool { return n.State != Finished })
}

// Leave takes those networks of a machine out of its pod that are about one of the pod's links, as before that link is
// taken. Devices of the node, which have no link, go with the pod's first one, which is taken last. The pod may be
// gone.
func (c Config) Leave(ctx context.Context, ns *netns.NS, pod, key, podLink string) (Record, error) {
	const first = "eth0"
	return c.leaveSome(ctx, ns, pod, key, func(n Network) bool {
		return n.PodLink == podLink || n.PodLink == "" && podLink == first
	})
}

func (c Config) leaveSome(ctx context.Context, ns *netns.NS, pod, key string, out func(Network) bool) (Record, error) {
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	spaces, closeAll, err := dial(ns)
	if err != nil {
		return Record{}, err
	}
	defer closeAll()
	r, found, err := c.Read(key, pod)
	if err != nil || !found {
		return Record{}, err
	}
	w := &work{Config: c, spaces: spaces, record: r}
	var names []string
	for _, n := range r.Networks {
		if out(n) {
			names = append(names, n.Interface.Name)
		}
	}
	if err := w.takeBack(ctx, names); err != nil {
		return Record{}, err
	}
	return w.record, nil
}

// Sweep takes away the records of other boots, and the locks of calls that were killed.
func (c Config) Sweep(ctx context.Context) error {
	files, err := c.files()
	errs := []error{err}
	for _, path := range files {
		r, found, err := c.read(path)
		if err != nil || found {
			errs = append(errs, err)
			continue
		}
		unlock, err := c.lock(ctx, r.Machine) // which tidies
		if errs = append(errs, err); err == nil {
			unlock()
		}
	}
	locks, err := filepath.Glob(filepath.Join(c.Dir, "*.lock"))
	errs = append(errs, err)
	for _, path := range locks {
		key := strings.Replace(strings.TrimSuffix(filepath.Base(path), ".lock"), ",", "/", 1)
		unlock, err := c.lock(ctx, key)
		if errs = append(errs, err); err == nil {
			unlock()
		}
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel/fastpath"
)

// path is a fast path by eBPF or by a flowtable.
type path interface {
	Set(ctx context.Context, all []fastpath.Link) ([]fastpath.Left, error)
	Enable(on bool, tcp, udp time.Duration) error
	Flush() error
	Links() []string
	Counters() (fastpath.Counters, error)
	Close() error
}

// load loads the path that the mode says, or the first one that the kernel has.
func (f *FastPath) load() error {
	ways := []string{f.cfg.Mode}
	if f.cfg.Mode == Auto {
		ways = []string{EBPF, Flowtable}
	}
	var lacks []string
	for _, way := range ways {
		p, port, err := f.loadWay(way)
		if err != nil {
			if f.cfg.Mode == Auto {
				err = fmt.Errorf("%s: %w", way, err)
			}
			lacks = append(lacks, err.Error())
			continue
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.path, f.way, f.port, f.lacks = p, way, port, strings.Join(lacks, "; ")
		return nil
	}
	return errors.New(strings.Join(lacks, "; "))
}

func (f *FastPath) loadWay(way string) (p path, port uint32, err error) {
	if way == Flowtable {
		t, err := fastpath.LoadFlowtable(f.cfg.NS)
		if err != nil {
			return nil, 0, err
		}
		if port, err = t.Port(); err != nil {
			return nil, 0, errors.Join(err, t.Close())
		}
		return t, port, nil
	}
	if f.cfg.Settings == nil {
		return nil, 0, errors.New("the previous setting of conntrack cannot be recorded")
	}
	e, err := fastpath.Load(f.cfg.NS)
	if err != nil {
		return nil, 0, err
	}
	return e, 0, nil
}

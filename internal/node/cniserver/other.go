// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Verb handles a request other than CNI's verbs (wire.VerbName). The namespace is the one passed with the request, nil
// if there was none; it is closed when the Verb has returned.
type Verb func(ctx context.Context, ns *netns.NS, words []byte) ([]byte, error)

// other does a verb that is not CNI's.
func (vs *verbs) other(c *call, r wire.Request, name string) (exit int, out []byte) {
	log := vs.log.With("verb", name)
	out, err := vs.runOther(c, r, name, log)
	took := time.Since(c.start).Round(time.Microsecond)
	if vs.cfg.Called != nil && vs.cfg.Verbs[name] != nil {
		vs.cfg.Called(name, codedOrNil(err), took)
	}
	if err != nil {
		log.Warn("call failed", "took", took, "err", err)
		return failure(err, "")
	}
	log.Debug("call done", "took", took)
	return 0, out
}

func (vs *verbs) runOther(c *call, r wire.Request, name string, log *slog.Logger) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("agent panicked in a call", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: %w: %v", name, errPanic, p)
		}
	}()
	verb := vs.cfg.Verbs[name]
	if verb == nil {
		return nil, model.Errorf(model.CodeInvalidEnv, "use the same version of the program and the agent",
			"the agent knows no %q", name[:min(len(name), 32)])
	}
	fd := c.netns
	c.netns = 0
	if fd == 0 {
		return verb(c.ctx, nil, r.Stdin())
	}
	path, _ := wire.Field(r.Stdin(), "netns")
	ns, err := netns.FromFD(fd, path)
	if err == nil {
		err = vs.refuseNodeNamespace(ns)
	}
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidNetns, "", "namespace %q: %w", path, err)
	}
	defer func() { _ = ns.Close() }()
	return verb(c.ctx, ns, r.Stdin())
}

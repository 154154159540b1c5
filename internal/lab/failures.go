// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/lab/layout"
)

// incompleteError is an error of a lab that is not rolled back, so that the cause can be inspected.
type incompleteError struct{ problem, hint string }

func (e *incompleteError) Error() string { return e.problem }

func incomplete(hint, format string, args ...any) error {
	return &incompleteError{problem: fmt.Sprintf(format, args...), hint: hint}
}

// failures are what has failed of a lab that is kept.
type failures struct {
	mu    sync.Mutex
	nodes map[string]bool
	all   []*incompleteError
}

// add adds an incompleteError, and returns other errors.
func (f *failures) add(err error) error {
	var partial *incompleteError
	if !errors.As(err, &partial) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, partial)
	return nil
}

// err returns one error with everything that has failed, and the hint of the first; nil if nothing has.
func (f *failures) err() error {
	if len(f.all) == 0 {
		return nil
	}
	var problems []string
	for _, e := range f.all {
		problems = append(problems, e.problem)
	}
	return &incompleteError{problem: strings.Join(problems, "; "), hint: f.all[0].hint}
}

// startNodes starts the processes of all nodes. A node that fails is an error, or with KeepGoing one of the failures.
func (u Up) startNodes(ctx context.Context, l layout.Layout, died context.CancelCauseFunc) (*failures, error) {
	failed := &failures{nodes: map[string]bool{}}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, n := range l.Nodes {
		group.Go(func() error {
			if !u.KeepGoing {
				return u.StartNode(gctx, n, died)
			}
			starting, nodeDied := context.WithCancelCause(gctx)
			defer nodeDied(nil)
			err := u.StartNode(starting, n, nodeDied)
			if err == nil || gctx.Err() != nil {
				return err
			}
			err = cause(gctx, starting, err)
			u.Logf("failed: %v", err)
			failed.mu.Lock()
			failed.nodes[n.Name] = true
			failed.mu.Unlock()
			return failed.add(incomplete(
				fmt.Sprintf("see the logs in %[1]s/nodes/NODE; start a process again with `weft lab restart --dir %[1]s NODE`", u.Dir), "%v", err))
		})
	}
	err := group.Wait()
	if err == nil && len(failed.nodes) == len(l.Nodes) {
		return nil, fmt.Errorf("all nodes have failed: %w", failed.err())
	}
	return failed, err
}

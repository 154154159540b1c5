// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
)

type stopFlags struct {
	namespace  string
	all, force bool
	wait       bool
	grace      time.Duration
	timeout    time.Duration
}

func newSandboxStopCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var s stopFlags
	cmd := &cobra.Command{
		Use:   "stop [NAMESPACE/]POD...",
		Short: "Stop pods and take away everything that is left of them",
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 0) != s.all {
				return ui.UsageError(errors.New("name pods, or --all"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var grace *time.Duration
			if cmd.Flags().Changed("grace") {
				grace = &s.grace
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
			defer cancel()
			c := sandbox.NewClient(f.stateDir)
			if err := resumeServer(ctx, env, f, c); err != nil {
				return err
			}
			return s.stop(ctx, env, c, args, grace)
		},
	}
	cmd.Flags().StringVarP(&s.namespace, "namespace", "n", "default", "of pods that are named without one")
	cmd.Flags().BoolVar(&s.all, "all", false, "stop all pods")
	cmd.Flags().BoolVar(&s.force, "force", false, "give up networks that cannot be given back")
	cmd.Flags().BoolVar(&s.wait, "wait", true, "wait until they are gone")
	cmd.Flags().DurationVar(&s.grace, "grace", 0,
		"how long containers may take to end (default: the pod's terminationGracePeriodSeconds)")
	cmd.Flags().DurationVar(&s.timeout, "timeout", 2*time.Minute, "how long to wait")
	return cmd
}

func (s stopFlags) stop(ctx context.Context, env ui.Env, c *sandbox.Client, args []string, grace *time.Duration) error {
	type pod struct{ namespace, name string }
	var pods []pod
	for _, a := range args {
		ns, name := podName(a, s.namespace)
		pods = append(pods, pod{ns, name})
	}
	if s.all {
		list, err := c.List(ctx)
		if errors.Is(err, sandbox.ErrNoServer) {
			return err
		}
		if err != nil {
			return err
		}
		for _, p := range list {
			pods = append(pods, pod{p.Namespace, p.Name})
		}
	}
	var errs []error
	stopped := pods[:0]
	for _, p := range pods {
		if err := c.Stop(ctx, p.namespace, p.name, grace, s.force); err != nil {
			errs = append(errs, err)
			continue
		}
		stopped = append(stopped, p)
	}
	for _, p := range stopped {
		if !s.wait {
			continue
		}
		if err := awaitGone(ctx, env, c, p.namespace, p.name); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(env.Stdout, "pod %s/%s stopped\n", p.namespace, p.name)
	}
	return errors.Join(errs...)
}

func awaitGone(ctx context.Context, env ui.Env, c *sandbox.Client, namespace, name string) error {
	last := ""
	slow := time.AfterFunc(2*time.Second, func() {
		fmt.Fprintf(
			env.Stderr, "weft: pod %s/%s: its containers were asked to end and have their grace period; --grace 1s is shorter\n",
			namespace, name,
		)
	})
	defer slow.Stop()
	err := c.Watch(ctx, namespace, name, func(d *sandbox.Detail) (bool, error) {
		if d == nil {
			return true, nil
		}
		last = why(d.Pod)
		return false, nil
	})
	if errors.Is(err, sandbox.ErrNoServer) {
		return nil // a runtime that ends with its last pod
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if last == "" {
			last = "its containers take their time"
		}
		return model.Faultf(model.CodeTryAgain, "it is tried further; --grace 0s is quicker, --force gives up its network",
			"pod %s/%s is not gone yet: %s", namespace, name, last)
	}
	return err
}

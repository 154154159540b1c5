// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
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
		Short: "Stop pods and clean up after them",
		Long: "Sends SIGTERM to the containers of the pods, kills them after the grace period, executes DEL for their networks, and\n" +
			"waits until the pods are gone.",
		Example: "  weft sandbox stop web\n" +
			"  weft sandbox stop --grace 1s default/web backend/db\n" +
			"  weft sandbox stop --all",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !s.all:
				return ui.Misusef("`weft sandbox list` lists them; `weft sandbox stop --all` stops all", "no pod named")
			case len(args) > 0 && s.all:
				return ui.Misusef("leave out --all or the pods", "argument %q does not fit --all", args[0])
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
	cmd.Flags().StringVarP(&s.namespace, "namespace", "n", "default", "`NAMESPACE` of pods without one")
	cmd.Flags().BoolVar(&s.all, "all", false, "stop all pods")
	cmd.Flags().BoolVar(&s.force, "force", false, "remove pods even if their network cannot be torn down")
	cmd.Flags().BoolVar(&s.wait, "wait", true, "wait until they are gone")
	cmd.Flags().DurationVar(&s.grace, "grace", 0,
		"`DURATION` of the containers' grace period (default: the pod's terminationGracePeriodSeconds)")
	cmd.Flags().DurationVar(&s.timeout, "timeout", 2*time.Minute, "`DURATION` to wait for the pods")
	cmd.ValidArgsFunction = complete.Every(f.pods)
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
			env.Stderr, "weft: pod %s/%s: waiting for its containers to exit within the grace period; --grace 1s is shorter\n",
			namespace, name,
		)
	})
	defer slow.Stop()
	err := c.Watch(ctx, namespace, name, func(d *sandbox.Detail) (bool, error) {
		if d == nil {
			return true, nil
		}
		last = reason(d.Pod)
		return false, nil
	})
	if errors.Is(err, sandbox.ErrNoServer) {
		return nil // the runtime has stopped after its last pod
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if last == "" {
			last = "its containers have not exited"
		}
		return model.Errorf(model.CodeTryAgain, "the runtime keeps trying; use --grace 0s, or --force to abandon its network",
			"pod %s/%s is still terminating: %s", namespace, name, last)
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Package objects opens the cluster's objects for a command: a directory of manifests, an API server or an etcd, as
// flags, an agent's configuration or the environment say.
package objects

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/kube"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/model"
)

// Source says where the cluster's objects are.
type Source struct {
	Env ui.Env
	// Config is the file of an agent's configuration, where the flag names one.
	Config               string
	storeDir, kubeconfig string
}

// Flags adds the flags that say it, and -o.
func (f *Source) Flags(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVar(&f.storeDir, "store-dir", "", "`DIR` of the cluster's manifests")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "",
		"`FILE` that says how the API server is reached (default: $KUBECONFIG; in a pod its service account; else ~/.kube/config)")
	cmd.Flags().StringVar(&f.Config, "config", "",
		"`FILE` of an agent's configuration, which says it: a directory, an API server or an etcd")
	cmd.MarkFlagsMutuallyExclusive("store-dir", "kubeconfig", "config")
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
}

// Open opens them.
func (f *Source) Open() (store.Objects, error) {
	if f.Config != "" {
		return f.ofAgent()
	}
	if f.storeDir != "" {
		return openDir(f.storeDir)
	}
	objects, found, err := kube.Open(f.Env, f.kubeconfig)
	if !found {
		return nil, ui.UsageError(
			model.Faultf(model.CodeInvalidConf, "give --store-dir, --kubeconfig or --config",
				"nothing says where the cluster's objects are"),
		)
	}
	return objects, err
}

// ofAgent opens the store of an agent.
func (f *Source) ofAgent() (store.Objects, error) {
	c, err := config.Load(f.Config)
	switch {
	case err != nil:
		return nil, err
	case c.StoreDir != "":
		return openDir(c.StoreDir)
	case len(c.Etcd.Endpoints) > 0:
		return f.openEtcd(c.Etcd)
	case c.Kubernetes.InCluster || c.Kubernetes.Kubeconfig != "":
		return kube.OpenConfigured(f.Env, c.Kubernetes)
	}
	return nil, model.Faultf(model.CodeInvalidConf, "set storeDir, kubernetes or etcd.endpoints there",
		"%s: that agent has no cluster", f.Config)
}

func openDir(path string) (store.Objects, error) {
	s, err := dir.Open(path)
	if err != nil {
		return nil, err
	}
	return s.Objects(), nil
}

// openEtcd opens an etcd; its connection ends with the program.
func (f *Source) openEtcd(e config.Etcd) (store.Objects, error) {
	s, err := etcd.OpenShelf(etcd.Config{
		Access: etcd.Access{
			Endpoints: e.Endpoints, Prefix: e.Prefix, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
			Username: e.Username, Password: e.Password,
		},
		Log: slog.New(slog.NewTextHandler(f.Env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Now: time.Now,
		After: time.After,
	})
	if err != nil {
		return nil, err
	}
	return s.Objects(), nil
}

// pm2 start inference.config.js      then: pm2 logs @NAME@-inference, pm2 stop @NAME@-inference
// pm2 save && pm2 startup            start at boot; then run the command that it prints
module.exports = {
  apps: [
    {
      name: "@NAME@-inference",
      script: "@QUASAR@",
      interpreter: "none",
      args: ["serve", "-C", "@WORKSPACE@", "--host", "0.0.0.0"],
      cwd: "/", // pm2 would give up if the workspace is missing; the server is started again
      // Put these into .env: pm2 saves its environment where everyone can read it.
      filter_env: ["WALLET_PASSWORD", "BT_PW_", "GITHUB_TOKEN", "QUASAR_PASSPHRASE"],
      // Restart after every failure: disks get mounted, models get downloaded.
      restart_delay: 60000,
      kill_timeout: 45000, // requests that have come are finished first
    },
  ],
};

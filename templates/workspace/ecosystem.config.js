// pm2 start ecosystem.config.js      then: pm2 logs @NAME@, pm2 stop @NAME@
// pm2 save && pm2 startup            start at boot; then run the command that it prints
module.exports = {
  apps: [
    {
      name: "@NAME@",
      script: "@QUASAR@",
      interpreter: "none",
      args: ["run", "-C", "@WORKSPACE@"],
      cwd: "/", // pm2 would give up if the workspace is missing; the miner keeps trying
      // Put these into .env: pm2 saves its environment where everyone can read it.
      filter_env: ["WALLET_PASSWORD", "BT_PW_", "GITHUB_TOKEN", "QUASAR_PASSPHRASE"],
      // Restart after every failure: bans end, disks get mounted, hotkeys get registered.
      restart_delay: 300000,
      // Stop only the miner, not a --notify command that is still running.
      treekill: false,
      kill_timeout: 15000,
    },
  ],
};

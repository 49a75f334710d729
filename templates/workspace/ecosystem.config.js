// pm2 start ecosystem.config.js      then: pm2 logs quasar-miner, pm2 stop quasar-miner, pm2 save
module.exports = {
  apps: [
    {
      name: "quasar-miner",
      script: "@QUASAR@",
      interpreter: "none",
      args: ["run"],
      cwd: "@WORKSPACE@",
      autorestart: true,
      restart_delay: 30000,
      // 0: it was told to stop. 2, 3, 5: a person is needed; another start would not help.
      stop_exit_codes: [0, 2, 3, 5],
      kill_timeout: 15000,
    },
  ],
};
